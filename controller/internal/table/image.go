package table

import (
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Image is everybody's rows at one moment. It shares what is equal with the Store and other Images, and never changes.
type Image struct{ parts map[fwd.Audience]*fwd.Part }

// part returns the part of an audience, empty where there is none.
func (i Image) part(a fwd.Audience) *fwd.Part {
	if p, ok := i.parts[a]; ok {
		return p
	}
	return &fwd.Part{}
}

// Image returns the rows of the present revision.
func (s *Store) Image() Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := Image{parts: make(map[fwd.Audience]*fwd.Part, len(s.channels))}
	for a, c := range s.channels {
		if c.current.part.Len() > 0 && a != fwd.ReplicaAudience() {
			i.parts[a] = c.current.part
		}
	}
	return i
}

// With returns the rows after updates.
func (i Image) With(updates []fwd.Update) Image {
	next := Image{parts: maps.Clone(i.parts)}
	if next.parts == nil {
		next.parts = map[fwd.Audience]*fwd.Part{}
	}
	for _, u := range updates {
		next.parts[u.Audience] = next.part(u.Audience).With(u.Remove, u.Put)
	}
	return next
}

// PublishOn is Publish with updates that apply to an Image in place of the present rows: what the Image had and the
// updates do not touch comes back, in the same revision.
func (s *Store) PublishOn(base Image, updates []fwd.Update, zones []NodeZone, cause time.Time) uint64 {
	s.authors.Lock()
	defer s.authors.Unlock()
	return s.replace(base.With(updates), installation{zones: zones, cause: cause})
}

// Succeed publishes the first tables of the term that Lead began, under its epoch: next and zones are all that its author
// knows, so that nodes of the predecessor that zones do not name are gone.
func (s *Store) Succeed(next Image, zones []NodeZone, cause time.Time) uint64 {
	s.authors.Lock()
	defer s.authors.Unlock()
	known := map[string]bool{}
	for _, z := range zones {
		known[z.Node] = !z.Gone
	}
	zones = slices.Clip(zones)
	for _, node := range s.Nodes() {
		if !known[node] {
			zones = append(zones, NodeZone{Node: node, Gone: true})
		}
	}
	return s.replace(next, installation{zones: zones, cause: cause, epoch: s.fence})
}

// replace installs all parts of next that differ. The caller has authors.
func (s *Store) replace(next Image, in installation) uint64 {
	in.parts = s.edited(s.part, placements(in.zones))
	for _, some := range []map[fwd.Audience]*fwd.Part{s.Image().parts, next.parts} {
		for a := range some {
			before := s.part(a)
			if d := fwd.DiffParts(before, next.part(a)); !d.Empty() {
				in.parts[a] = before.With(d.Remove, d.Put)
			}
		}
	}
	revision, wake := s.install(in)
	wake()
	return revision
}
