package nftables

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// load makes the state what a table asks for, and returns what all does. recall tells the slots that a list has already, by
// one of its frontends.
func (st *state) load(now *fwd.Table, recall func(pool, frontend) []netip.AddrPort) ([]Element, structure) {
	for id, p := range now.Ports() {
		if p.Family == st.settings.family {
			st.ports[id] = held{lists: st.recalled(p, recall)}
			st.take(id, now)
		}
	}
	elements, own := st.programs(func(p program) {
		st.census.count(p.demand, 1)
		st.countAllShared(p)
	})
	st.needs = st.census.needs()
	st.structure = st.settings.structure(st.needs)
	return st.whole(elements, own)
}

func (st *state) recalled(p *fwd.Port, recall func(pool, frontend) []netip.AddrPort) lists {
	var l lists
	internal, external := claims(p)
	for _, f := range internal {
		if p.InternalLocal {
			l.local = recall(addressPool, f)
		} else {
			l.cluster = recall(addressPool, f)
		}
	}
	for _, f := range external {
		l.cluster = recall(poolOf(f), f)
		if p.ExternalLocal {
			l.local = recall(poolOf(f).local(), f)
		}
	}
	return l
}

// programs plans all Service ports, and returns what none of them shares with another.
func (st *state) programs(each func(program)) ([]Element, structure) {
	elements, own := make([]Element, 0, 8*len(st.ports)), structure{}
	for id, h := range st.ports {
		p := st.plan(id, h)
		each(p)
		own.sets = append(own.sets, p.own.sets...)
		own.chains = append(own.chains, p.own.chains...)
		for _, el := range p.elements {
			if !shared(el.Set) {
				elements = append(elements, el)
			}
		}
	}
	return elements, own
}

// whole adds what Service ports share, and what is there for all of them.
func (st *state) whole(elements []Element, own structure) ([]Element, structure) {
	for set, addresses := range st.shared {
		for a := range addresses {
			elements = append(elements, st.settings.sharedElement(set, a))
		}
	}
	return elements, structure{slices.Concat(st.structure.sets, own.sets), slices.Concat(st.structure.chains, own.chains)}
}
