package proxy

import (
	"fmt"
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

// TestChangeEndsAudit: a change does not wait for an audit, but an audit is left in peace when there was none for long.
func TestChangeEndsAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r := newRows()
		b.put(t, r)
		synctest.Wait()
		b.kernel.mu.Lock()
		b.kernel.auditBlock = make(chan struct{})
		b.kernel.mu.Unlock()
		<-time.After(3 * time.Second)
		synctest.Wait()
		b.put(t, r.add(fwd.Common, fwd.EncodePort(servicePort(1))))
		synctest.Wait()
		if diff := b.kernel.holds(b.table); diff != "" || b.kernel.audited() != 1 {
			t.Errorf("the change waited: %s; %d audits", diff, b.kernel.audited())
		}
		<-time.After(secondLook)
		b.put(t, r.add(fwd.Common, fwd.EncodePort(servicePort(2))))
		synctest.Wait()
		if b.kernel.holds(b.table) == "" || b.kernel.audited() != 2 {
			t.Errorf("the second audit was given up too; %d audits", b.kernel.audited())
		}
		<-time.After(5 * time.Second)
		close(b.kernel.auditBlock)
		synctest.Wait()
		if diff := b.kernel.holds(b.table); diff != "" {
			t.Error(diff)
		}
		b.kernel.mu.Lock()
		b.kernel.auditBlock = make(chan struct{})
		b.kernel.mu.Unlock()
		defer close(b.kernel.auditBlock)
		for i := range 4 { // that audit took 5 s, so that changes go first for 100 s
			<-time.After(4 * time.Second)
			b.put(t, r.add(fwd.Common, fwd.EncodePort(servicePort(3+i))))
			synctest.Wait()
			if diff := b.kernel.holds(b.table); diff != "" {
				t.Errorf("change %d waited for an audit soon after another: %s", i, diff)
			}
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
