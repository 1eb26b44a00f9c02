package ipvs

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// layout is the whole plan: which Service ports want which objects. Several may want the same one, such as the route of a
// virtual IP; it is there as long as one does, and the first claim by rank and ID says how it is.
type layout struct {
	settings *settings
	table    *fwd.Table
	wanted   map[object][]owned
}

// owned is a claim without its object, and whose it is.
type owned struct {
	rank  uint8
	id    fwd.ID
	value value
}

func (a owned) compare(b owned) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.id, b.id))
}

// newLayout plans a table from scratch.
func newLayout(s *settings, t *fwd.Table) *layout {
	l := &layout{settings: s, table: t, wanted: map[object][]owned{}}
	for id := range t.Ports() {
		for _, c := range l.claims(t, id) {
			l.add(id, c)
		}
	}
	return l
}

// update makes the layout one of the table now, in which only the named Service ports differ. It returns the objects that
// may have changed.
func (l *layout) update(now *fwd.Table, ids []fwd.ID) map[object]bool {
	touched := map[object]bool{}
	for _, id := range ids {
		for _, c := range l.claims(l.table, id) {
			l.remove(id, c.object)
			touched[c.object] = true
		}
		for _, c := range l.claims(now, id) {
			l.add(id, c)
			touched[c.object] = true
		}
	}
	l.table = now
	return touched
}

// claims are those of one Service port of a table; of a family that is left out, or no Service port, none.
func (l *layout) claims(t *fwd.Table, id fwd.ID) []claim {
	p, ok := t.Port(id)
	if !ok || !slices.Contains(l.settings.config.families(), p.Family) {
		return nil
	}
	return l.settings.claims(p)
}

func (l *layout) add(id fwd.ID, c claim) {
	o := owned{c.rank, id, c.value}
	i, found := slices.BinarySearchFunc(l.wanted[c.object], o, owned.compare)
	if !found {
		l.wanted[c.object] = slices.Insert(l.wanted[c.object], i, o)
	}
}

func (l *layout) remove(id fwd.ID, c object) {
	l.wanted[c] = slices.DeleteFunc(l.wanted[c], func(o owned) bool { return o.id == id })
	if len(l.wanted[c]) == 0 {
		delete(l.wanted, c)
	}
}

// value returns what an object should be; false: it should not be. Service ports that meet in one mark have no virtual server
// by mark, any of them: their local clients get what clients outside get, and never another Service's endpoints.
func (l *layout) value(o object) (value, bool) {
	claims := l.wanted[o]
	if len(claims) == 0 || o.kind == shortcut && len(claims) > 1 {
		return value{}, false
	}
	return claims[0].value, true
}
