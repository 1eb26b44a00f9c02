package fwd

import (
	"maps"
	"net/netip"
	"slices"
)

// view carries a change of rows over to the typed view of a table that nobody else holds yet.
type view struct {
	table   *Table
	edit    *edit
	ports   map[ID]*portEdit
	changed Changed
	// turned are frontends that came or went.
	turned map[frontend]struct{}
}

// portEdit collects what happens to one ServicePort and its lists; nil backends go.
type portEdit struct {
	port  *ServicePort
	gone  bool
	lists [numScopes]map[netip.AddrPort]*Backend
}

// update takes one part's difference. before is the part that removals are looked up in.
func (v *view) update(s Scope, before *Part, c PartChange) error {
	for _, key := range c.Remove {
		old, _ := before.Get(key)
		v.forget(s, old)
	}
	for _, r := range c.Put {
		if old, ok := before.Get(r.Key); ok {
			v.forget(s, old)
		}
		if err := v.learn(s, r); err != nil {
			return err
		}
	}
	return nil
}

// forget takes a row of an earlier table out of the view. That table was decoded once, so this one decodes.
func (v *view) forget(s Scope, r Row) {
	it, err := Decode(s, r)
	switch {
	case err != nil || it.refused():
		v.table.refused--
	case !it.Known():
		v.table.unknown--
	case it.Port != nil:
		v.port(it.ID).gone = true
	case it.Backend != nil:
		v.port(it.ID).list(s)[it.Backend.Addr] = nil
	case it.Node != nil:
		v.table.node, v.changed.Node = NodeFacts{}, true
	case it.Cluster != nil:
		v.table.cluster, v.changed.Cluster = ClusterFacts{}, true
	}
}

func (v *view) learn(s Scope, r Row) error {
	it, err := Decode(s, r)
	switch {
	case err != nil:
		return err
	case it.refused():
		v.table.refused++
	case !it.Known():
		v.table.unknown++
	case it.Port != nil:
		v.port(it.ID).port = it.Port
	case it.Backend != nil:
		v.port(it.ID).list(s)[it.Backend.Addr] = it.Backend
	case it.Node != nil:
		v.table.node, v.changed.Node = *it.Node, true
	case it.Cluster != nil:
		v.table.cluster, v.changed.Cluster = *it.Cluster, true
	}
	return nil
}

// refused reports whether the row is well formed but must not reach a kernel.
func (i Item) refused() bool {
	switch {
	case i.Port != nil:
		return i.Port.Validate() != nil
	case i.Backend != nil:
		return i.Backend.Validate(FamilyOf(i.Backend.Addr.Addr())) != nil
	}
	return false
}

func (v *view) port(id ID) *portEdit {
	p, ok := v.ports[id]
	if !ok {
		p = &portEdit{}
		v.ports[id] = p
	}
	return p
}

func (p *portEdit) list(s Scope) map[netip.AddrPort]*Backend {
	if p.lists[s] == nil {
		p.lists[s] = map[netip.AddrPort]*Backend{}
	}
	return p.lists[s]
}

// commit writes the collected edits and returns what was touched.
func (v *view) commit() Changed {
	v.changed.Ports = slices.Sorted(maps.Keys(v.ports))
	for _, id := range v.changed.Ports {
		before, next := &Port{}, &Port{}
		if it, ok := v.table.ports.get(uint64(id), id); ok {
			before = it.value
			*next = *before
		}
		v.ports[id].apply(next)
		if was, is := before.frontends(), next.frontends(); !slices.Equal(was, is) {
			v.count(was, -1)
			v.count(is, +1)
		}
		if next.empty() {
			v.table.refused -= before.heldBack() - next.heldBack()
			v.table.ports.remove(v.edit, uint64(id), id)
			continue
		}
		v.table.refused += next.heldBack() - before.heldBack()
		v.table.ports.put(v.edit, item[ID, *Port]{hash: uint64(id), key: id, value: next})
	}
	v.refuse()
	return v.changed
}

// empty reports whether neither the Service port nor any backend of it is in the table.
func (p *Port) empty() bool {
	return p.Name == "" && slices.Concat(p.lists[:]...) == nil && p.heldBack() == 0
}

func (p *portEdit) apply(to *Port) {
	switch {
	case p.port != nil:
		to.ServicePort = *p.port
	case p.gone:
		to.ServicePort = ServicePort{}
	}
	for _, s := range Scopes() {
		if len(p.lists[s]) == 0 {
			continue
		}
		list := make([]Backend, 0, len(to.lists[s])+len(to.heldIn(s))+len(p.lists[s]))
		for _, b := range slices.Concat(to.lists[s], to.heldIn(s)) {
			if _, touched := p.lists[s][b.Addr]; !touched {
				list = append(list, b)
			}
		}
		for _, b := range p.lists[s] {
			if b != nil {
				list = append(list, *b)
			}
		}
		slices.SortFunc(list, compareBackends)
		to.lists[s] = slices.Clip(list)
		if len(list) == 0 {
			to.lists[s] = nil
		}
		to.setHeld(s, nil)
	}
}
