package table

import "github.com/fairlead/fairlead/proto/fwd"

// Loss is what tables lack that others have, in rows: Backends of lists and Service Ports, of so many there are.
type Loss struct {
	Backends, OfBackends, Ports, OfPorts int
	rows                                 map[fwd.Audience][]string
}

// Lost returns what the present tables have and next does not. Backends that are merely kept, and the rows of nodes, do not
// count.
func (s *Store) Lost(next Image) Loss {
	l := Loss{rows: map[fwd.Audience][]string{}}
	for a, part := range s.Image().parts {
		after := next.part(a)
		for row := range part.Rows() {
			it, err := fwd.Decode(a.Scope, row)
			if err != nil || it.Port == nil && (it.Backend == nil || it.Backend.State == fwd.Kept) {
				continue
			}
			lost, of := &l.Backends, &l.OfBackends
			if it.Port != nil {
				lost, of = &l.Ports, &l.OfPorts
			}
			*of++
			if _, there := after.Get(row.Key); !there {
				*lost++
				l.rows[a] = append(l.rows[a], row.Key)
			}
		}
	}
	return l
}

// In is how much of what is lost an Image has.
func (l Loss) In(other Image) int {
	n := 0
	for a, keys := range l.rows {
		part := other.part(a)
		for _, key := range keys {
			if _, there := part.Get(key); there {
				n++
			}
		}
	}
	return n
}
