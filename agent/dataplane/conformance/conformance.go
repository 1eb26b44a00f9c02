// Package conformance is the suite that every backend passes: what dataplane.Interface promises, tried on a real kernel.
//
// Input is a function that opens a Harness: a kernel of its own (a network namespace) with the backend on top. The suite
// looks at the backend through its interface alone, and at the kernel through the harness's Dump. Which packets go where is
// not its business but that of the traces (package trace). Its neighbours are the tests of internal/iptables, internal/ipvs
// and internal/nftables, which call Run.
package conformance

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Harness is a kernel that nothing but the test uses.
type Harness struct {
	// New makes the backend as after a start of the agent: it remembers nothing, and the kernel is as it is.
	New func() dataplane.Interface
	// Dump prints the kernel: all that backends of the mode program, and what Foreign added. Equal states have equal text.
	Dump func() string
	// Fault makes the n-th kernel transaction from now on fail, once: before the kernel takes it, or afterwards if late is
	// set. n = 0 calls that off.
	Fault func(n int, late bool)
	// Foreign adds things of somebody else's, next to which the backend has to work.
	Foreign func() error
	// Edits are changes of what the backend programmed that somebody else might make, by name. They need a table with
	// Services of all kinds to be there.
	Edits map[string]func() error
}

// Run runs the suite; open is called for each kernel that it needs, which lives until the end of the test t.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	s := suite{open}
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"idempotence", s.idempotence},
		{"path", s.path},
		{"restart", s.restart},
		{"faults", s.faults},
		{"audit", s.audit},
		{"cleanup", s.cleanup},
		{"emptyTable", s.emptyTable},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

type suite struct {
	open func(t *testing.T) Harness
}

func everything() dataplane.Delta { return dataplane.Delta{All: true} }

// step is what one Sync is asked for.
type step struct {
	before, now *fwd.Table
	delta       dataplane.Delta
}

// start is the first step after a start of the agent.
func start(now *fwd.Table) step { return step{&fwd.Table{}, now, dataplane.Delta{All: true}} }

func sync(t *testing.T, d dataplane.Interface, s step) dataplane.Report {
	t.Helper()
	r, err := d.Sync(t.Context(), s.before, s.now, s.delta)
	if err != nil {
		t.Fatalf("sync: %v", err)
	}
	return r
}

// fresh is what a kernel looks like that never had another table.
func (s suite) fresh(t *testing.T, table *fwd.Table) string {
	t.Helper()
	h := s.open(t)
	sync(t, h.New(), start(table))
	return h.Dump()
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	has := map[string]int{}
	for _, line := range w {
		has[line]++
	}
	for _, line := range g {
		has[line]--
	}
	var lines []string
	for _, line := range append(w, g...) {
		switch {
		case has[line] > 0:
			lines = append(lines, "missing: "+line)
		case has[line] < 0:
			lines = append(lines, "surplus: "+line)
		}
		has[line] = 0
	}
	t.Fatalf("%s: the kernel differs from a fresh one (same lines in another order, if none is listed):\n%s", what, strings.Join(lines, "\n"))
}

// idempotence: what is there already is not written again, whichever way a table comes.
func (s suite) idempotence(t *testing.T) {
	h, table := s.open(t), newWorld(1).table(t)
	d := h.New()
	if r := sync(t, d, start(table)); r.Writes == 0 {
		t.Error("the first sync wrote nothing")
	}
	before := h.Dump()
	for name, delta := range map[string]dataplane.Delta{"nothing": {}, "everything": everything(), "all ports": {Changed: allPorts(table)}} {
		if r := sync(t, d, step{table, table, delta}); r.Writes != 0 {
			t.Errorf("same table, delta of %s: %d writes, want 0", name, r.Writes)
		}
	}
	if r := sync(t, h.New(), start(table)); r.Writes != 0 {
		t.Errorf("same table after a restart: %d writes, want 0", r.Writes)
	}
	same(t, "after syncs of the same table", h.Dump(), before)
}

func allPorts(table *fwd.Table) fwd.Changed {
	c := fwd.Changed{Node: true, Cluster: true}
	for id := range table.Ports() {
		c.Ports = append(c.Ports, id)
	}
	return c
}

// path: the kernel does not depend on the tables that came before.
func (s suite) path(t *testing.T) {
	h, w := s.open(t), newWorld(2)
	rng := rand.New(rand.NewPCG(2, 2))
	d, now := h.New(), &fwd.Table{}
	for round := range 60 {
		before := now
		var delta dataplane.Delta
		now, delta.Changed = w.next(t, before)
		delta.All = round == 0
		sync(t, d, step{before, now, delta})
		if round%20 == 19 {
			same(t, "after a history", h.Dump(), s.fresh(t, now))
			if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) > 0 {
				t.Fatalf("audit: %v, error %v", ds, err)
			}
		}
		w.mutate(rng, 1+rng.IntN(12))
	}
}

// restart: a new backend takes over what another one left, and brings it to a later table.
func (s suite) restart(t *testing.T) {
	h, w := s.open(t), newWorld(3)
	rng := rand.New(rand.NewPCG(3, 3))
	for range 4 {
		table := w.table(t)
		sync(t, h.New(), start(table))
		same(t, "after a restart with another table", h.Dump(), s.fresh(t, table))
		w.mutate(rng, 40)
	}
}

// faults: whichever transaction fails, the next sync of everything makes it good.
func (s suite) faults(t *testing.T) {
	w := newWorld(4)
	rng := rand.New(rand.NewPCG(4, 4))
	first := w.table(t)
	w.mutate(rng, 30)
	second, changed := w.next(t, first)
	want := s.fresh(t, second)
	for _, late := range []bool{false, true} {
		for n := 1; ; n++ {
			h := s.open(t)
			d := h.New()
			h.Fault(n, late)
			_, errFirst := d.Sync(t.Context(), &fwd.Table{}, first, everything())
			var errSecond error
			if errFirst == nil {
				_, errSecond = d.Sync(t.Context(), first, second, dataplane.Delta{Changed: changed})
			}
			h.Fault(0, false)
			sync(t, d, step{first, second, everything()})
			same(t, "after a fault", h.Dump(), want)
			if errFirst == nil && errSecond == nil {
				break // all transactions have failed once
			}
			if n > 500 {
				t.Fatal("500 transactions for a small table")
			}
		}
	}
}

// audit: every foreign edit is noticed, audits change nothing, and a sync of everything repairs.
func (s suite) audit(t *testing.T) {
	h, table := s.open(t), newWorld(5).table(t)
	d := h.New()
	if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) > 0 {
		t.Errorf("audit before the first sync: %v, error %v", ds, err)
	}
	sync(t, d, start(table))
	clean := h.Dump()
	for name, edit := range h.Edits {
		for range 2 { // a second look may be a shorter one
			if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) > 0 {
				t.Errorf("%s: audit of a clean kernel: %v, error %v", name, ds, err)
			}
		}
		if err := edit(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		edited := h.Dump()
		if edited == clean {
			t.Fatalf("%s: changes nothing", name)
		}
		for range 2 {
			if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) == 0 {
				t.Errorf("%s: audit found nothing, error %v", name, err)
			}
		}
		same(t, name+": audit", h.Dump(), edited)
		if r := sync(t, d, step{table, table, everything()}); r.Writes == 0 {
			t.Errorf("%s: the repair wrote nothing", name)
		}
		same(t, name+": repair", h.Dump(), clean)
	}
	if len(h.Edits) == 0 {
		t.Error("the harness has no edits")
	}
}

// cleanup: nothing of ours stays, everything of others does; with or without knowing what was programmed.
func (s suite) cleanup(t *testing.T) {
	h, table := s.open(t), newWorld(6).table(t)
	if err := h.Foreign(); err != nil {
		t.Fatal(err)
	}
	empty := h.Dump()
	for _, restarted := range []bool{false, true} {
		d := h.New()
		sync(t, d, start(table))
		if h.Dump() == empty {
			t.Fatal("sync changed nothing")
		}
		if restarted {
			d = h.New()
		}
		for range 2 { // the second time there is nothing to do
			if err := d.Cleanup(t.Context()); err != nil {
				t.Errorf("cleanup, restarted %v: %v", restarted, err)
			}
			same(t, "cleanup", h.Dump(), empty)
		}
	}
}

// emptyTable: Services come and go until none is left, and that is a table like any other.
func (s suite) emptyTable(t *testing.T) {
	h, table := s.open(t), newWorld(7).table(t)
	d, none := h.New(), &fwd.Table{}
	sync(t, d, step{none, none, everything()})
	empty := h.Dump()
	sync(t, d, step{none, table, dataplane.Delta{Changed: allPorts(table)}})
	sync(t, d, step{table, none, dataplane.Delta{Changed: allPorts(table)}})
	same(t, "after the last Service went", h.Dump(), empty)
}
