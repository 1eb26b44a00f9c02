package compile

import (
	"maps"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// edits gathers rows by audience. Where one Service removes the key that another puts (IDs that meet), the row is put.
type edits map[fwd.Audience]*edit

type edit struct {
	remove map[string]struct{}
	rows   map[string]string
}

func (es edits) of(a fwd.Audience) *edit {
	e := es[a]
	if e == nil {
		e = &edit{remove: map[string]struct{}{}, rows: map[string]string{}}
		es[a] = e
	}
	return e
}

func (e *edit) put(r fwd.Row)      { e.rows[r.Key] = r.Value }
func (e *edit) removed(key string) { e.remove[key] = struct{}{} }

// replace notes one row that takes the place of another; the zero Row is none.
func (es edits) replace(a fwd.Audience, was, is fwd.Row) {
	switch {
	case was == is:
	case is.Key == "":
		es.of(a).removed(was.Key)
	default:
		es.of(a).put(is)
	}
}

// updates returns the edits in the form that fwd.Update asks for, sorted by audience.
func (es edits) updates() []fwd.Update {
	var us []fwd.Update
	for _, a := range slices.SortedFunc(maps.Keys(es), fwd.Audience.Compare) {
		u := fwd.Update{Audience: a}
		for _, key := range slices.Sorted(maps.Keys(es[a].remove)) {
			if _, kept := es[a].rows[key]; !kept {
				u.Remove = append(u.Remove, key)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(es[a].rows)) {
			u.Put = append(u.Put, fwd.Row{Key: key, Value: es[a].rows[key]})
		}
		us = append(us, u)
	}
	return us
}

// merge walks two sorted slices and calls visit for each key of either, with nil where one lacks it. Of equal elements in
// one slice, each meets its own counterpart or none.
func merge[T any](a, b []T, compare func(a, b T) int, visit func(was, is *T)) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && compare(a[0], b[0]) < 0:
			visit(&a[0], nil)
			a = a[1:]
		case len(a) == 0 || compare(a[0], b[0]) > 0:
			visit(nil, &b[0])
			b = b[1:]
		default:
			visit(&a[0], &b[0])
			a, b = a[1:], b[1:]
		}
	}
}
