package proxy

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestNothingBeforeTheFirstTable: an agent that hears nothing changes nothing, however long.
func TestNothingBeforeTheFirstTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.kernel.foreign <- struct{}{}
		<-time.After(time.Hour)
		synctest.Wait()
		if n := len(b.kernel.syncs()); n != 0 || b.kernel.audited() != 0 || len(b.reported()) != 0 || b.health.last() != "" {
			t.Errorf("%d syncs, %d audits, %d reports, health %q", n, b.kernel.audited(), len(b.reported()), b.health.last())
		}
	})
}

// TestFirstTableThenChanges: the first Sync looks at everything, also when the table is empty; the next at what differs;
// and each is reported after the kernel's answer.
func TestFirstTableThenChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r := newRows()
		b.put(t, r)
		synctest.Wait()
		r.add(fwd.Common, fwd.EncodePort(servicePort(1))).add(fwd.Common, backend(1, 1))
		b.put(t, r)
		synctest.Wait()
		b.put(t, r) // the same again
		synctest.Wait()

		deltas := b.kernel.syncs()
		if len(deltas) != 2 || !deltas[0].All || deltas[1].All || !slices.Equal(deltas[1].Ports, []fwd.ID{servicePort(1).ID()}) {
			t.Errorf("deltas %+v", deltas)
		}
		if diff := b.kernel.holds(b.table); diff != "" {
			t.Error(diff)
		}
		var revisions []uint64
		for _, o := range b.reported() {
			if o.Err != nil || o.Epoch != 1 {
				t.Errorf("outcome %+v", o)
			}
			revisions = append(revisions, o.Revision)
		}
		if !slices.Equal(revisions, []uint64{1, 2, 3}) {
			t.Errorf("reported revisions %v", revisions)
		}
		if got := strings.Join(b.health.calls, " "); got != "pending updated pending updated" {
			t.Errorf("health heard %q", got)
		}
	})
}

// TestLatestWins: while the kernel is busy, revisions add up to one Sync of the newest.
func TestLatestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.kernel.block = make(chan struct{})
		r := newRows()
		for n := range 5 {
			b.put(t, r.add(fwd.Common, fwd.EncodePort(servicePort(n))))
			synctest.Wait()
		}
		if len(b.reported()) != 0 {
			t.Error("reported before the kernel answered")
		}
		close(b.kernel.block)
		synctest.Wait()
		if n := len(b.kernel.syncs()); n != 2 {
			t.Errorf("%d syncs, want the first and the newest", n)
		}
		if diff := b.kernel.holds(b.table); diff != "" || b.last().Revision != 5 {
			t.Errorf("%s; last outcome %+v", diff, b.last())
		}
	})
}

// TestFaultAtEveryWrite: whatever write fails first, the kernel converges by a Sync of everything, the failure is reported
// once and then the success, and back-off keeps attempts apart.
func TestFaultAtEveryWrite(t *testing.T) {
	for fail := range 9 {
		t.Run(fmt.Sprint(fail), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				r := newRows()
				for n := range 4 {
					r.add(fwd.Common, fwd.EncodePort(servicePort(n)))
				}
				b.put(t, r)
				synctest.Wait()
				for n := 2; n < 6; n++ { // two change, two are new
					r.add(fwd.Common, fwd.EncodePort(servicePort(n))).add(fwd.Common, backend(n, n))
				}
				calls, failures := 0, 0
				b.kernel.setFault(func() bool {
					calls++
					hit := calls-1 == fail && fail < 5 || fail >= 5 && failures < fail
					if hit {
						failures++
					}
					return hit
				})
				b.put(t, r)
				<-time.After(time.Minute)
				synctest.Wait()
				if failures == 0 {
					t.Fatal("nothing was injected")
				}
				if diff := b.kernel.holds(b.table); diff != "" {
					t.Error(diff)
				}
				deltas, outcomes := b.kernel.syncs(), b.reported()
				if len(deltas) != failures+2 || deltas[1].All || !deltas[2].All {
					t.Errorf("%d failures, deltas %+v", failures, deltas)
				}
				if len(outcomes) != 3 || outcomes[1].Err == nil || !strings.HasPrefix(outcomes[1].Err.Error(), "dataplane: ") || outcomes[2].Err != nil {
					t.Errorf("outcomes %+v", outcomes)
				}
				if b.health.last() != "updated" {
					t.Errorf("health %v", b.health.calls)
				}
			})
		})
	}
}

// TestPathIndependence: whatever the history, with faults on the way, the kernel ends up as the newest table says.
func TestPathIndependence(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			step := &recorder{rng: faults}
			b := newBench(t, step)
			b.kernel.setFault(func() bool { return !step.quiet.Load() && faults.IntN(10) == 0 })
			r := newRows()
			for range 40 {
				for range 1 + rng.IntN(4) {
					r.mutate(rng)
				}
				b.put(t, r)
				if rng.IntN(3) == 0 {
					<-time.After(time.Duration(rng.IntN(3000)) * time.Millisecond)
				}
				synctest.Wait()
			}
			step.quiet.Store(true)
			<-time.After(6 * time.Second)
			synctest.Wait()
			if diff := b.kernel.holds(b.table); diff != "" {
				t.Errorf("seed %d: %s", seed, diff)
			}
			if got, want := step.content, maps.Collect(names(b.table)); !maps.Equal(got, want) {
				t.Errorf("seed %d: step holds %v, want %v", seed, got, want)
			}
			if o := b.last(); o.Err != nil || o.Revision != b.revision {
				t.Errorf("seed %d: last outcome %+v, want success of %d", seed, o, b.revision)
			}
		})
	}
}

// TestBackOff: a failing kernel is not tried at every new table, and at least every RetryMax.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.kernel.setFault(func() bool { return true })
		r := newRows()
		for n := range 600 {
			r.add(fwd.Common, fwd.EncodePort(servicePort(n%100)))
			b.put(t, r)
			<-time.After(100 * time.Millisecond)
		}
		if n := len(b.kernel.syncs()); n < 12 || n > 60 {
			t.Errorf("%d attempts in a minute of 600 tables", n)
		}
		if n := strings.Count(b.log.String(), "programming failed"); n != 1 {
			t.Errorf("the same failure was logged %d times", n)
		}
		if b.health.last() != "pending" {
			t.Errorf("health heard %q last", b.health.last())
		}
	})
}

// TestStepFails: the kernel goes on, the report says what is missing, and the Step gets all it missed later.
func TestStepFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := &recorder{rng: rand.New(rand.NewPCG(1, 1))}
		step.broken.Store(true)
		b := newBench(t, step)
		r := newRows()
		b.put(t, r.add(fwd.Common, fwd.EncodePort(servicePort(1))))
		synctest.Wait()
		b.put(t, r.add(fwd.Common, fwd.EncodePort(servicePort(2))))
		synctest.Wait()
		if diff := b.kernel.holds(b.table); diff != "" {
			t.Error(diff)
		}
		if o := b.last(); o.Revision != 2 || o.Err == nil || o.Err.Error() != "recorder: injected" {
			t.Errorf("outcome %+v", o)
		}
		step.broken.Store(false)
		<-time.After(6 * time.Second)
		synctest.Wait()
		if o := b.last(); o.Revision != 2 || o.Err != nil || len(step.content) != 2 {
			t.Errorf("outcome %+v, step holds %v", o, step.content)
		}
		if n := len(b.kernel.syncs()); n != 2 {
			t.Errorf("%d syncs", n)
		}
	})
}

// TestStepsRunEverySyncPeriod, without a difference too, and their notices are reported.
func TestStepsRunEverySyncPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := &recorder{rng: rand.New(rand.NewPCG(1, 1)), notices: []dataplane.Notice{{Namespace: "a", Name: "b", Reason: "R", Message: "m"}}}
		b := newBench(t, step)
		b.put(t, newRows())
		<-time.After(91 * time.Second)
		synctest.Wait()
		outcomes := b.reported()
		if step.calls != 4 || len(outcomes) != 4 || !slices.Equal(outcomes[3].Notices, step.notices) || outcomes[3].Err != nil {
			t.Errorf("%d calls, outcomes %+v", step.calls, outcomes)
		}
		const counted = `# HELP fairlead_notices_total Facts that the owners of Services were told in Events, by reason, such as ports that this node's kernel cannot forward.
# TYPE fairlead_notices_total counter
fairlead_notices_total{reason="R"} 4
`
		if err := testutil.GatherAndCompare(b.registry, strings.NewReader(counted), "fairlead_notices_total"); err != nil {
			t.Error(err)
		}
	})
}

// TestStepsRunWhenDue, at once.
func TestStepsRunWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := &recorder{rng: rand.New(rand.NewPCG(1, 1))}
		b := newBench(t, step)
		b.put(t, newRows())
		synctest.Wait()
		b.due <- struct{}{}
		synctest.Wait()
		if step.calls != 2 || len(b.kernel.syncs()) != 1 {
			t.Errorf("%d calls of the Step, %d syncs; want 2 and 1", step.calls, len(b.kernel.syncs()))
		}
		close(b.due)
		synctest.Wait()
		<-time.After(time.Second)
		synctest.Wait()
		if step.calls != 3 {
			t.Errorf("%d calls after the end of the source, want 3", step.calls)
		}
	})
}

// TestResync looks at everything from time to time and, where nothing differs, says nothing of it.
func TestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(t, newRows().add(fwd.Common, fwd.EncodePort(servicePort(1))))
		<-time.After(21 * time.Minute)
		synctest.Wait()
		if deltas := b.kernel.syncs(); len(deltas) != 3 || !deltas[2].All || len(b.reported()) != 1 {
			t.Errorf("deltas %+v, outcomes %+v", deltas, b.reported())
		}
	})
}

// TestProgrammingTime: what it took from the cause to the kernel is measured once per change.
func TestProgrammingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.put(t, newRows().add(fwd.Common, fwd.EncodePort(servicePort(1))))
		<-time.After(11 * time.Minute) // over a resync
		synctest.Wait()
		count, sum := histogramOf(t, b, "kubeproxy_network_programming_duration_seconds")
		if count != 1 || sum > 0.001 {
			t.Errorf("%d observations of %v s together", count, sum)
		}
		if err := testutil.GatherAndCompare(b.registry, strings.NewReader(`
# HELP fairlead_applied_revision Revision of the table that this node forwards by.
# TYPE fairlead_applied_revision gauge
fairlead_applied_revision 1
`), "fairlead_applied_revision"); err != nil {
			t.Error(err)
		}
	})
}

func histogramOf(t *testing.T, b *bench, name string) (count uint64, sum float64) {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0, 0
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	_, err := New(Config{})
	for _, field := range []string{"Dataplane", "Source", "Health", "Report", "Metrics", "Logger", "AuditInterval", "RetryMax"} {
		if err == nil || !strings.Contains(err.Error(), field+" is required") {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
}

// recorder is a Step that remembers the names of Service ports, by deltas alone.
type recorder struct {
	rng           *rand.Rand
	broken, quiet atomic.Bool
	calls         int
	content       map[fwd.ID]string
	notices       []dataplane.Notice
}

func (*recorder) Name() string { return "recorder" }

func (r *recorder) Follow(_ context.Context, before, now *fwd.Table, delta dataplane.Delta) ([]dataplane.Notice, error) {
	r.calls++
	if r.broken.Load() || !r.quiet.Load() && r.rng.IntN(10) == 0 && r.notices == nil && r.content != nil && len(r.content) != 2 {
		return nil, errInjected
	}
	if delta.All {
		r.content = maps.Collect(names(now))
		return r.notices, nil
	}
	if !maps.Equal(r.content, maps.Collect(names(before))) {
		return nil, fmt.Errorf("before is not what was followed last: %v", r.content)
	}
	for _, id := range delta.Ports {
		delete(r.content, id)
		if p, ok := now.Port(id); ok {
			r.content[id] = p.PortName.String()
		}
	}
	return r.notices, nil
}

func names(t *fwd.Table) func(func(fwd.ID, string) bool) {
	return func(yield func(fwd.ID, string) bool) {
		for id, p := range t.Ports() {
			if !yield(id, p.PortName.String()) {
				return
			}
		}
	}
}
