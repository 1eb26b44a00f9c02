package nftables

import (
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// state is what the kernel was last known to hold in one family, in the terms of the plan. It remembers which Service
// ports are there and the slots of their endpoints; elements follow from that.
type state struct {
	settings  *settings
	structure structure
	needs     needs
	ports     map[fwd.ID]held
	// owners says which Service port has a frontend. Where several claim it, rivals are all of them, the owner first.
	owners map[frontend]claim
	rivals map[frontend][]claim
	// shared counts the Service ports that want an element of a shared set, each of which is about one address.
	shared map[string]map[address]int32
	census census
}

// held is a Service port that is programmed.
type held struct {
	port  *fwd.Port
	lists lists
}

type claim struct {
	external bool
	id       fwd.ID
}

func newState(s *settings) *state {
	return &state{
		settings: s, ports: map[fwd.ID]held{}, owners: map[frontend]claim{}, rivals: map[frontend][]claim{},
		shared: map[string]map[address]int32{clusterIPSet: {}, hairpinSet: {}},
	}
}

// move brings the state from one table to the next for some Service ports, and returns what has to be written. Settings
// that are not nil replace those before.
func (st *state) move(now *fwd.Table, ids []fwd.ID, next *settings) edit {
	if next != nil {
		ids = append(st.filtered(), ids...)
	}
	ids = st.concerned(now, ids)
	before, after := newSum(), newSum()
	for _, id := range ids {
		if h, ok := st.ports[id]; ok {
			before.add(st.plan(id, h))
		}
	}
	for _, id := range ids {
		st.take(id, now)
	}
	if next != nil {
		st.settings = next
	}
	for _, id := range ids {
		if h, ok := st.ports[id]; ok {
			after.add(st.plan(id, h))
		}
	}
	st.settleShared(before, after)
	for _, d := range before.demands {
		st.census.count(d, -1)
	}
	for _, d := range after.demands {
		st.census.count(d, 1)
	}
	var e edit
	e.diffElements(before.elements, after.elements)
	e.diffStructure(before.own, after.own)
	st.restructure(&e, next != nil)
	e.sort()
	return e
}

// sum is what several programs consist of.
type sum struct {
	elements []Element // without the shared ones
	own      structure
	demands  []demand
	// shared counts elements that other programs may have too.
	shared map[place]int
}

func newSum() *sum { return &sum{shared: map[place]int{}} }

func (s *sum) add(p program) {
	s.own.chains = append(s.own.chains, p.own.chains...)
	s.own.sets = append(s.own.sets, p.own.sets...)
	s.demands = append(s.demands, p.demand)
	for _, el := range p.elements {
		if shared(el.Set) {
			s.shared[el.place()]++
		} else {
			s.elements = append(s.elements, el)
		}
	}
}

// own are those of some Service ports that are of the family, before or now.
func (st *state) own(now *fwd.Table, ids []fwd.ID) []fwd.ID {
	var own []fwd.ID
	for _, id := range ids {
		_, before := st.ports[id]
		if _, after := st.wanted(id, now); before || after {
			own = append(own, id)
		}
	}
	return own
}

// filtered are the Service ports whose elements depend on the node's addresses: those with source ranges.
func (st *state) filtered() []fwd.ID {
	var ids []fwd.ID
	for id, h := range st.ports {
		if len(h.port.SourceRanges) > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// restructure brings the chains and sets of all in line with what is needed now.
func (st *state) restructure(e *edit, anew bool) {
	n := st.census.needs()
	if n == st.needs && !anew {
		return
	}
	next := st.settings.structure(n)
	e.diffStructure(st.structure, next)
	st.structure, st.needs = next, n
}

// concerned adds to some Service ports those that claim a frontend of theirs too.
func (st *state) concerned(now *fwd.Table, ids []fwd.ID) []fwd.ID {
	all := slices.Clone(ids)
	for _, id := range ids {
		for _, f := range st.frontends(id, now) {
			for _, c := range st.claimants(f) {
				all = append(all, c.id)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// frontends are those that a Service port has or had.
func (st *state) frontends(id fwd.ID, now *fwd.Table) []frontend {
	var all []frontend
	if h, ok := st.ports[id]; ok {
		internal, external := claims(h.port)
		all = slices.Concat(all, internal, external)
	}
	if p, ok := st.wanted(id, now); ok {
		internal, external := claims(p)
		all = slices.Concat(all, internal, external)
	}
	return all
}

func (st *state) wanted(id fwd.ID, now *fwd.Table) (*fwd.Port, bool) {
	p, ok := now.Port(id)
	return p, ok && p.Family == st.settings.family
}

func (st *state) plan(id fwd.ID, h held) program {
	return st.settings.plan(id, h.port, h.lists, func(f frontend) bool { return st.owners[f].id == id })
}

// take makes a Service port what it is in the table.
func (st *state) take(id fwd.ID, now *fwd.Table) {
	old := st.ports[id]
	if old.port != nil {
		internal, external := claims(old.port)
		for _, f := range slices.Concat(internal, external) {
			st.settle(f, slices.DeleteFunc(st.claimants(f), func(c claim) bool { return c.id == id }))
		}
	}
	delete(st.ports, id)
	p, ok := st.wanted(id, now)
	if !ok {
		return
	}
	want := listsOf(p)
	st.ports[id] = held{p, lists{fill(old.lists.cluster, want.cluster), fill(old.lists.local, want.local), want.beyond}}
	st.enlist(id, p)
}

// enlist makes a Service port claim its frontends.
func (st *state) enlist(id fwd.ID, p *fwd.Port) {
	internal, external := claims(p)
	for _, f := range internal {
		st.claim(f, claim{false, id})
	}
	for _, f := range external {
		st.claim(f, claim{true, id})
	}
}

func (st *state) claim(f frontend, c claim) {
	all := st.claimants(f)
	if slices.Contains(all, c) {
		return
	}
	all = append(all, c)
	slices.SortFunc(all, func(a, b claim) int {
		switch {
		case a.external != b.external && b.external, a.external == b.external && a.id < b.id:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	st.settle(f, all)
}

// claimants are those that claim a frontend, the owner first.
func (st *state) claimants(f frontend) []claim {
	if all, ok := st.rivals[f]; ok {
		return all
	}
	if c, ok := st.owners[f]; ok {
		return []claim{c}
	}
	return nil
}

// settle is the inverse of claimants.
func (st *state) settle(f frontend, all []claim) {
	delete(st.owners, f)
	delete(st.rivals, f)
	if len(all) > 0 {
		st.owners[f] = all[0]
	}
	if len(all) > 1 {
		st.rivals[f] = all
	}
}
