package nftables

import (
	"maps"
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
	// owners says which Service ports claim a frontend; the first one has it.
	owners map[frontend][]claim
	// shared counts the Service ports that want an element of a shared set.
	shared map[string]map[string]int
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
		settings: s, ports: map[fwd.ID]held{}, owners: map[frontend][]claim{},
		shared: map[string]map[string]int{clusterIPSet: {}, hairpinSet: {}},
	}
}

// move brings the state from one table to the next for some Service ports, and returns the elements and the structure that
// belonged to them before and after.
func (st *state) move(now *fwd.Table, ids []fwd.ID) (e edit) {
	ids = st.concerned(now, ids)
	before, after := map[place]Element{}, map[place]Element{}
	var ownBefore, ownAfter structure
	for _, id := range ids {
		if h, ok := st.ports[id]; ok {
			st.account(st.plan(id, h), -1, before, &ownBefore)
		}
	}
	for _, id := range ids {
		st.take(id, now)
	}
	for _, id := range ids {
		if h, ok := st.ports[id]; ok {
			st.account(st.plan(id, h), 1, after, &ownAfter)
		}
	}
	e.diffElements(before, after)
	e.diffStructure(ownBefore, ownAfter)
	st.restructure(&e)
	e.sorted()
	return e
}

// restructure brings the chains and sets of all in line with what is needed now.
func (st *state) restructure(e *edit) {
	n := st.census.needs()
	if n == st.needs && len(st.structure.chains) > 0 {
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
			for _, c := range st.owners[f] {
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
	return st.settings.plan(id, h.port, h.lists, func(f frontend) bool { return st.owners[f][0].id == id })
}

// account adds a program to, or takes it out of, what is there, and collects what it consists of.
func (st *state) account(p program, by int, into map[place]Element, own *structure) {
	st.census.count(p.demand, by)
	own.chains = append(own.chains, p.own.chains...)
	own.sets = append(own.sets, p.own.sets...)
	for _, el := range p.elements {
		if !shared(el.Set) {
			into[el.place()] = el
			continue
		}
		counts := st.shared[el.Set]
		// It was there before if anyone had it before the first change, and will be if anyone has it in the end.
		if by < 0 && counts[el.Key] > 0 || by > 0 {
			into[el.place()] = el
		}
		counts[el.Key] += by
		if counts[el.Key] == 0 {
			delete(counts, el.Key)
		}
	}
}

// take makes a Service port what it is in the table.
func (st *state) take(id fwd.ID, now *fwd.Table) {
	old, had := st.ports[id]
	if had {
		internal, external := claims(old.port)
		for _, f := range slices.Concat(internal, external) {
			left := slices.DeleteFunc(st.owners[f], func(c claim) bool { return c.id == id })
			if st.owners[f] = left; len(left) == 0 {
				delete(st.owners, f)
			}
		}
		delete(st.ports, id)
	}
	p, ok := st.wanted(id, now)
	if !ok {
		return
	}
	want := listsOf(p)
	st.ports[id] = held{p, lists{fill(old.lists.cluster, want.cluster), fill(old.lists.local, want.local)}}
	internal, external := claims(p)
	for _, f := range internal {
		st.claim(f, claim{false, id})
	}
	for _, f := range external {
		st.claim(f, claim{true, id})
	}
}

func (st *state) claim(f frontend, c claim) {
	if slices.Contains(st.owners[f], c) {
		return
	}
	all := append(st.owners[f], c)
	slices.SortFunc(all, func(a, b claim) int {
		switch {
		case a.external != b.external && b.external, a.external == b.external && a.id < b.id:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	st.owners[f] = all
}

// everything is all that the kernel should hold.
func (st *state) everything() (map[place]Element, structure) {
	all := make(map[place]Element, 8*len(st.ports))
	st2 := *st
	st2.census, st2.shared = census{}, map[string]map[string]int{clusterIPSet: {}, hairpinSet: {}}
	whole := structure{sets: slices.Clone(st.structure.sets), chains: slices.Clone(st.structure.chains)}
	for _, id := range slices.Sorted(maps.Keys(st.ports)) {
		st2.account(st2.plan(id, st.ports[id]), 1, all, &whole)
	}
	return all, whole
}
