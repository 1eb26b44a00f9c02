package table

import (
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
		if c.current.part.Len() > 0 {
			i.parts[a] = c.current.part
		}
	}
	return i
}

// PublishOn is Publish with updates that apply to an Image in place of the present rows: what the Image had and the
// updates do not touch comes back, in the same revision.
func (s *Store) PublishOn(base Image, updates []fwd.Update, zones []NodeZone, cause time.Time) uint64 {
	s.authors.Lock()
	defer s.authors.Unlock()
	wanted := s.edited(base.part, updates)
	parts := map[fwd.Audience]*fwd.Part{}
	for _, present := range []map[fwd.Audience]*fwd.Part{s.Image().parts, base.parts, wanted} {
		for a := range present {
			want, ok := wanted[a]
			if !ok {
				want = base.part(a)
			}
			if d := fwd.DiffParts(s.part(a), want); !d.Empty() {
				parts[a] = want
			}
		}
	}
	revision, woken := s.install(parts, zones, cause)
	for _, f := range woken {
		f.wake()
	}
	return revision
}
