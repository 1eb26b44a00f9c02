package iptables

import (
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// touched collects which chains an update may have changed.
type touched struct {
	layout *layout
	spots  map[treeID]map[spot]bool
	keys   map[treeID]map[key]bool // whose rules changed, while the shape of the tree may not have
	chains []Chain
	gone   []chainKey
}

// update makes the layout one of the table now, in which only the named Service ports differ. It returns all chains that
// may have changed, sorted like chains, and the names of chains that are no more; either may name some needlessly. After
// any sequence of updates the layout is that of newLayout.
func (l *layout) update(now *fwd.Table, ids []fwd.ID) ([]Chain, []chainKey) {
	t := touched{layout: l, spots: map[treeID]map[spot]bool{}, keys: map[treeID]map[key]bool{}}
	before := l.table
	l.table = now
	for _, id := range ids {
		t.port(id, l.program(before, id), l.program(now, id))
	}
	if len(t.spots)+len(t.keys)+len(t.chains)+len(t.gone) == 0 {
		return nil, nil
	}
	t.trees()
	t.hooks()
	sortChains(t.chains)
	return t.chains, t.gone
}

// program plans a Service port of a table; none, or one of the other family, has an empty program.
func (l *layout) program(t *fwd.Table, id fwd.ID) program {
	p, ok := t.Port(id)
	if !ok || p.Family != l.settings.family {
		return program{}
	}
	return l.settings.plan(p)
}

func (t *touched) port(id fwd.ID, before, after program) {
	for _, c := range before.chains {
		if !slices.ContainsFunc(after.chains, func(o Chain) bool { return o.chainKey == c.chainKey }) {
			t.gone = append(t.gone, c.chainKey)
		}
	}
	t.chains = append(t.chains, after.chains...)
	for _, e := range before.entries {
		if !after.has(e) {
			t.reshape(e, func(tr *tree) { tr.remove(e.key, id) })
		}
		note(t.keys, e.tree, e.key)
	}
	for _, e := range after.entries {
		if !before.has(e) {
			t.reshape(e, func(tr *tree) { tr.add(e.key, id) })
		}
		note(t.keys, e.tree, e.key)
	}
}

// has reports whether the program has a rule at the same key.
func (p program) has(e entry) bool {
	return slices.ContainsFunc(p.entries, func(o entry) bool { return o.tree == e.tree && o.key == e.key })
}

// reshape notes the chains on the way to a key, before and after it came or went. Where a leaf became an inner chain or
// the other way round, its limbs came or went too.
func (t *touched) reshape(e entry, change func(*tree)) {
	tr := t.layout.trees[e.tree]
	before := tr.way(e.key)
	var limbs []limb
	for _, b := range before {
		note(t.spots, e.tree, b.spot)
		if b.kids != nil {
			limbs = append(limbs, b.limbs()...)
		}
	}
	change(tr)
	after := tr.way(e.key)
	for _, b := range after {
		note(t.spots, e.tree, b.spot)
	}
	if len(before) == len(after) {
		return
	}
	for _, b := range after {
		if b.kids != nil {
			limbs = append(limbs, b.limbs()...)
		}
	}
	for _, b := range limbs {
		note(t.spots, e.tree, b.spot)
	}
}

func (t *touched) trees() {
	for id, keys := range t.keys {
		for k := range keys {
			tr := t.layout.trees[id]
			if way := tr.way(k); len(way) > 0 {
				note(t.spots, id, way[len(way)-1].spot)
			}
			if at, ok := tr.at(k); ok && at.crowded() {
				t.chains = append(t.chains, t.layout.crowd(id, at))
			} else if k.addr.IsValid() {
				t.gone = append(t.gone, chainKey{tr.table, tr.crowdChain(k)})
			}
		}
	}
	for id, spots := range t.spots {
		tr := t.layout.trees[id]
		for s := range spots {
			if b, ok := tr.find(s); ok {
				t.chains = append(t.chains, t.layout.limb(id, b))
			} else {
				t.gone = append(t.gone, chainKey{tr.table, tr.chain(s)})
			}
		}
	}
}

func (t *touched) hooks() {
	hooks := t.layout.hooks()
	t.chains = append(t.chains, hooks...)
	for _, c := range []chainKey{{natTable, outsideChain}, {natTable, nodePortsChain}, {filterTable, nodePortsBlockChain}} {
		if !slices.ContainsFunc(hooks, func(o Chain) bool { return o.chainKey == c }) {
			t.gone = append(t.gone, c)
		}
	}
}

func note[K comparable](m map[treeID]map[K]bool, id treeID, k K) {
	if m[id] == nil {
		m[id] = map[K]bool{}
	}
	m[id][k] = true
}
