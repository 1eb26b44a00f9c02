package nftables

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/agent/dataplane"
)

// comparison is an audit: what the families were last known to hold when it began.
type comparison struct {
	generation *generation
	families   []*familyComparison
}

// familyComparison reads the kernel by a socket of its own, and shares nothing that a Sync writes to until differences.
type familyComparison struct {
	*language
	kernel   kernel
	expected *state
	found    []finding
	// incomplete: there may be more than was found.
	incomplete bool
	touched    *touched
}

// touched is what Syncs have written since an audit began. Safe for concurrent use.
type touched struct {
	mu  sync.Mutex // guards ids
	ids map[objectID]bool
}

// has reports whether a finding may be of something that was written since.
func (t *touched) has(d finding) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[d.objectID] || t.ids[objectID{name: d.name, chain: d.chain}]
}

// objectID is the identity of an element, or of a set or chain, which have no key.
type objectID struct {
	chain     bool
	name, key string
}

// finding is a difference and what it is of. Elements that should be there come along.
type finding struct {
	objectID
	dataplane.Difference
	want Element
}

// Audit implements dataplane.Interface. It costs next to nothing where nobody else has written since the last time.
func (b *Backend) Audit() dataplane.Audit {
	if b.generation.unchanged() {
		return nil
	}
	c := &comparison{generation: &b.generation}
	for _, f := range b.families {
		if f.state == nil {
			continue
		}
		f.touched = &touched{ids: map[objectID]bool{}}
		c.families = append(c.families, &familyComparison{
			language: f.language, kernel: b.reader, expected: f.state.snapshot(), touched: f.touched,
		})
	}
	if len(c.families) == 0 {
		return nil
	}
	b.generation.begin()
	return c
}

// Read implements dataplane.Audit.
func (c *comparison) Read(ctx context.Context) error {
	for _, f := range c.families {
		if err := f.read(ctx); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}

func (f *familyComparison) read(ctx context.Context) error {
	has, err := read(ctx, f.kernel, f.language)
	if err != nil {
		return err
	}
	f.found = has.differences(f.language, f.expected)
	f.expected = nil
	return f.confirm(ctx)
}

// enoughMissing is how many missing elements are told at most, since each is asked for one by one.
const enoughMissing = 1000

// confirm asks again for elements that the read may have left out because others were written meanwhile. What Syncs have
// taken away since is not asked for, or it would use up what may be told.
func (f *familyComparison) confirm(ctx context.Context) error {
	missing := 0
	var failed error
	f.found = slices.DeleteFunc(f.found, func(d finding) bool {
		switch {
		case d.key == "" || d.Problem != "missing" || failed != nil:
			return false
		case f.touched.has(d):
			return true
		case missing == enoughMissing:
			f.incomplete = true
			return true
		}
		there, err := holds(f.kernel, f.language, d.want)
		failed = cmp.Or(err, ctx.Err())
		if !there {
			missing++
		}
		return there
	})
	return failed
}

// Differences implements dataplane.Audit.
func (c *comparison) Differences() []dataplane.Difference {
	var ds []dataplane.Difference
	incomplete := false
	for _, f := range c.families {
		incomplete = incomplete || f.incomplete
		for _, d := range f.found {
			if !f.touched.has(d) {
				ds = append(ds, d.Difference)
			}
		}
	}
	c.generation.end(len(ds) == 0 && !incomplete)
	return ds
}

// snapshot is what all needs of the state, which moves on meanwhile.
func (st *state) snapshot() *state {
	s := newState(st.settings)
	s.structure, s.ports = st.structure, maps.Clone(st.ports)
	return s
}

// restore makes a snapshot whole, and returns all that it says.
func (st *state) restore() ([]Element, structure) {
	for id, h := range st.ports {
		st.enlist(id, h.port)
	}
	return st.whole(st.programs(st.countAllShared))
}

// differences says what the kernel has otherwise than a snapshot, in stable order.
func (img *image) differences(l *language, snapshot *state) []finding {
	elements, want := snapshot.restore()
	table := "nftables " + l.ip + " " + tableName
	if !img.exists {
		return []finding{{Difference: dataplane.Difference{Object: table, Problem: "missing"}}}
	}
	var fs []finding
	if img.flags != 0 {
		fs = append(fs, finding{Difference: dataplane.Difference{Object: table, Problem: "changed"}})
	}
	for _, d := range img.structureDifferences(l, want) {
		kind := " chain "
		if d.set {
			kind = " set "
		}
		fs = append(fs, finding{objectID{chain: !d.set, name: d.name}, dataplane.Difference{Object: table + kind + d.name, Problem: d.problem}, Element{}})
	}
	var e edit
	e.diffElements(img.elements, elements)
	for problem, els := range map[string][]Element{"missing": e.add, "changed": e.replace, "foreign": e.remove} {
		for _, el := range els {
			object := table + " set " + el.Set + " element " + l.keyText(el, want)
			fs = append(fs, finding{objectID{name: el.Set, key: el.Key}, dataplane.Difference{Object: object, Problem: problem}, el})
		}
	}
	slices.SortFunc(fs, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Problem, b.Problem))
	})
	return fs
}

// note notes all that an edit writes. Elements that go with their set are left to the set.
func (t *touched) note(e *edit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, els := range [][]Element{e.add, e.replace, e.remove} {
		for _, el := range els {
			t.ids[objectID{name: el.Set, key: el.Key}] = true
		}
	}
	for _, s := range e.addSets {
		t.ids[objectID{name: s.Name}] = true
	}
	for _, name := range e.dropSets {
		t.ids[objectID{name: name}] = true
	}
	for _, c := range e.addChains {
		t.ids[objectID{chain: true, name: c.Name}] = true
	}
	for _, name := range e.dropChains {
		t.ids[objectID{chain: true, name: name}] = true
	}
}
