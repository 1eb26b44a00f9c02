package proxy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/proto/fwd"
)

// damage takes a Service port out of the kernel behind the loop's back.
func (k *kernel) damage(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.content, servicePort(n).ID())
}

// TestAuditRepairs within the interval, counts it, and says so once.
func TestAuditRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(t, newRows().add(fwd.Common, fwd.EncodePort(servicePort(1))).add(fwd.Common, fwd.EncodePort(servicePort(2))))
		<-time.After(10 * time.Second)
		b.kernel.damage(1)
		<-time.After(3 * time.Second)
		synctest.Wait()
		if diff := b.kernel.holds(b.table); diff != "" {
			t.Error(diff)
		}
		if err := testutil.GatherAndCompare(b.registry, strings.NewReader(`
# HELP fairlead_audit_repairs_total Audits that found the kernel changed by somebody else, upon which it was programmed anew.
# TYPE fairlead_audit_repairs_total counter
fairlead_audit_repairs_total 1
`), "fairlead_audit_repairs_total"); err != nil {
			t.Error(err)
		}
		if !strings.Contains(b.log.String(), "first=\"default/s1:/TCP/IPv4 changed\"") {
			t.Errorf("log: %s", b.log)
		}
		if len(b.reported()) != 1 {
			t.Errorf("outcomes %+v", b.reported())
		}
	})
}

// TestForeignChangeIsAuditedSoon, long before the interval, and a burst of signs is one audit.
func TestForeignChangeIsAuditedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(t, newRows().add(fwd.Common, fwd.EncodePort(servicePort(1))))
		synctest.Wait()
		b.kernel.damage(1)
		for range 3 {
			b.kernel.foreign <- struct{}{}
			synctest.Wait()
		}
		<-time.After(foreignSettles + time.Millisecond)
		synctest.Wait()
		if diff := b.kernel.holds(b.table); diff != "" || b.kernel.audited() != 1 {
			t.Errorf("%s; %d audits", diff, b.kernel.audited())
		}
		close(b.kernel.foreign) // a watch that ends is a reason to look, and stops nothing
		<-time.After(10 * time.Second)
		synctest.Wait()
		if b.kernel.audited() != 5 {
			t.Errorf("%d audits, want one at the watch's end and three by the interval", b.kernel.audited()-1)
		}
	})
}

// TestEndlessForeignChanges do not put the audit off.
func TestEndlessForeignChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(t, newRows().add(fwd.Common, fwd.EncodePort(servicePort(1))))
		synctest.Wait()
		b.kernel.damage(1)
		for range 3 {
			b.kernel.foreign <- struct{}{}
			<-time.After(foreignSettles / 2)
			synctest.Wait()
		}
		if diff := b.kernel.holds(b.table); diff != "" || b.kernel.audited() != 1 {
			t.Errorf("%s; %d audits", diff, b.kernel.audited())
		}
	})
}

// many is a table of so many Service ports.
func many(n int) rows {
	r := newRows()
	for i := range n {
		r.add(fwd.Common, fwd.EncodePort(servicePort(i)))
	}
	return r
}

// set changes the kernel's fields while the loop runs.
func (k *kernel) set(f func(*kernel)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(k)
}

// TestChangeDuringAudit: a change is in the kernel before the audit that was on its way ends, which ends all the same and
// finds what somebody else did.
func TestChangeDuringAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r := many(2)
		b.put(t, r)
		synctest.Wait()
		block := make(chan struct{})
		b.kernel.set(func(k *kernel) { k.auditBlock = block })
		<-time.After(3 * time.Second)
		synctest.Wait()
		b.put(t, r.add(fwd.Common, backend(1, 1)))
		synctest.Wait()
		if diff := b.kernel.holds(b.table); diff != "" || b.kernel.audited() != 1 {
			t.Errorf("the change waited: %s; %d audits", diff, b.kernel.audited())
		}
		<-time.After(5 * time.Minute)
		b.kernel.damage(0)
		b.kernel.set(func(k *kernel) { k.auditBlock = nil })
		close(block)
		synctest.Wait()
		if diff := b.kernel.holds(b.table); diff != "" || b.kernel.audited() != 1 {
			t.Errorf("the audit was given up: %s; %d audits", diff, b.kernel.audited())
		}
	})
}

// TestAuditsUnderSteadyChanges: audits end however often tables come, find what somebody else did within five seconds, and
// never take changes of our own for somebody else's.
func TestAuditsUnderSteadyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const ports, damages = 100, 5
		r := many(ports)
		b.put(t, r)
		synctest.Wait()
		b.kernel.set(func(k *kernel) { k.readTakes = 4 * time.Millisecond })
		rng := rand.New(rand.NewPCG(1, 1))
		for n := range damages {
			<-time.After(time.Duration(rng.IntN(4000)) * time.Millisecond)
			b.kernel.damage(0) // the only one that does not change
			for n := range 5 * 10 {
				<-time.After(100 * time.Millisecond)
				b.put(t, r.add(fwd.Node, fwd.EncodeNode(fwd.NodeFacts{Deleting: n%2 == 0})).add(fwd.Common, backend(1+n%(ports-1), n)))
				synctest.Wait()
				if n := len(b.reported()); uint64(n) != b.revision {
					t.Fatalf("revision %d waits", b.revision)
				}
			}
			if diff := b.kernel.holds(b.table); diff != "" {
				t.Fatalf("damage %d: %s", n, diff)
			}
		}
		if got := testutil.ToFloat64(b.metrics.repairs); got != damages {
			t.Errorf("%v repairs of %d damages", got, damages)
		}
	})
}

// TestAuditsRest: long audits are far apart, also where somebody else writes all the time.
func TestAuditsRest(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.put(t, many(10))
			synctest.Wait()
			b.kernel.set(func(k *kernel) { k.readTakes = time.Second })
			for range 10 * 600 {
				<-time.After(100 * time.Millisecond)
				if foreign {
					select {
					case b.kernel.foreign <- struct{}{}:
					default:
					}
				}
			}
			// Each takes 10 s and rests for 30, but where a Sync of everything, of which there is one, ends it.
			if n := b.kernel.audited(); n < 14 || n > 16 {
				t.Errorf("%d audits in ten minutes, somebody else writes: %v", n, foreign)
			}
		})
	}
}

// TestStarvingAudit: where reading begins anew with every change, it gets the kernel for itself after a while, for a moment;
// if that is not enough, changes go on.
func TestStarvingAudit(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration // for each of ten Service ports
		found bool
		waits time.Duration
	}{{40 * time.Millisecond, true, 400 * time.Millisecond}, {400 * time.Millisecond, false, auditHold}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			r := many(10)
			b.put(t, r)
			synctest.Wait()
			b.kernel.set(func(k *kernel) { k.starves, k.readTakes = true, c.takes })
			b.kernel.damage(0)
			longest, since := time.Duration(0), time.Now()
			for n := range 40 * 10 {
				<-time.After(100 * time.Millisecond)
				if b.last().Revision == b.revision {
					since = time.Now()
				}
				longest = max(longest, time.Since(since))
				b.put(t, r.add(fwd.Common, backend(1+n%9, n%50)))
				synctest.Wait()
			}
			if found := b.kernel.holds(b.table) == ""; found != c.found || longest > c.waits+200*time.Millisecond {
				t.Errorf("reading takes 10 times %v: damage found %v, a change waited for %v", c.takes, found, longest)
			}
		})
	}
}

// TestSyncOfEverythingVoidsAudit: what was read before the kernel was written anew says nothing.
func TestSyncOfEverythingVoidsAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r := many(2)
		b.put(t, r)
		synctest.Wait()
		b.kernel.set(func(k *kernel) { k.readTakes = 2 * time.Second })
		b.kernel.damage(0)
		b.kernel.damage(1)
		<-time.After(5*time.Second + 500*time.Millisecond) // one of the two was read
		b.kernel.setFault(func() bool { return true })
		b.put(t, r.add(fwd.Common, backend(1, 1)))
		synctest.Wait()
		b.kernel.setFault(func() bool { return false })
		<-time.After(2 * time.Second)
		synctest.Wait()
		if diff := b.kernel.holds(b.table); diff != "" {
			t.Error(diff)
		}
		if repairs, failures := testutil.ToFloat64(b.metrics.repairs), testutil.ToFloat64(b.metrics.failures.WithLabelValues("audit")); repairs+failures > 0 {
			t.Errorf("%v repairs and %v failed audits, want none", repairs, failures)
		}
	})
}

// TestAuditFails: it is counted and logged, and the next one comes.
func TestAuditFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(t, many(1))
		synctest.Wait()
		b.kernel.set(func(k *kernel) { k.readError = errInjected })
		<-time.After(7 * time.Second)
		synctest.Wait()
		if n := testutil.ToFloat64(b.metrics.failures.WithLabelValues("audit")); n != 2 || !strings.Contains(b.log.String(), "audit failed") {
			t.Errorf("%v failed audits are counted; log: %s", n, b.log)
		}
		b.kernel.set(func(k *kernel) { k.readError, k.quiet = nil, true })
		<-time.After(3 * time.Second)
		synctest.Wait()
		if n := testutil.ToFloat64(b.metrics.audits); n != 3 {
			t.Errorf("%v audits are counted, want 3 with the one that had nothing to read", n)
		}
	})
}

// TestRepairFails: a repair is retried like any change, makes the agent unhealthy meanwhile, and is reported.
func TestRepairFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(t, newRows().add(fwd.Common, fwd.EncodePort(servicePort(1))))
		synctest.Wait()
		var healed atomic.Bool
		b.kernel.setFault(func() bool { return !healed.Load() })
		b.kernel.damage(1)
		<-time.After(4 * time.Second)
		synctest.Wait()
		if o := b.last(); o.Err == nil || b.health.last() != "pending" {
			t.Errorf("outcome %+v, health %q", o, b.health.last())
		}
		healed.Store(true)
		<-time.After(6 * time.Second)
		synctest.Wait()
		if diff := b.kernel.holds(b.table); diff != "" || fmt.Sprint(b.last().Err) != "<nil>" || b.health.last() != "updated" {
			t.Errorf("%s; outcome %+v, health %q", diff, b.last(), b.health.last())
		}
	})
}
