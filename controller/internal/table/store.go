package table

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Options of a Store; zero fields take the defaults.
type Options struct {
	// Recent is how many versions of each audience are kept for followers that resume, the current one included.
	// Default 64. Versions share what is equal, so each costs a few kilobytes for each row that it changed.
	Recent int
	// MessageBytes bounds an encoded message, headers of gRPC and HTTP/2 aside. Default 256 KiB, least 1 KiB. A single row that
	// is larger travels alone.
	MessageBytes int
}

const (
	defaultRecent       = 64
	defaultMessageBytes = 256 << 10
	minMessageBytes     = 1 << 10
)

// NodeZone places a node: from this revision on it is in Zone ("" for a node without the label), or no longer exists (Gone).
type NodeZone struct {
	Node, Zone string
	Gone       bool
}

// Store holds the current tables of all nodes. It is safe for concurrent use.
type Store struct {
	opts Options

	// epoch is that of the present tables' author; changed under mu.
	epoch atomic.Uint64

	// encoded counts differences and snapshots that were encoded, for Stats.
	encoded atomic.Uint64

	// authors serialises Publish; it is never taken under mu.
	authors sync.Mutex

	mu sync.Mutex // guards everything below, the channels and the positions of followers
	// fence is the epoch that Lead began; older ones are refused.
	fence uint64
	// revision is the number of the last one; 0 before the first.
	revision uint64
	channels map[fwd.Audience]*channel
	// zones holds the nodes that are known, with their zones; gone the ones that went but are still followed.
	zones map[string]string
	gone  map[string]bool
	// last is what a follower took last; most others of its time take the same.
	last *revision
	// followers is how many agents follow; replicas are those who take everything.
	followers int
	replicas  map[*Replica]struct{}
}

// NewStore returns an empty store; epoch is that of the first author.
func NewStore(epoch uint64, opts Options) *Store {
	if opts.Recent <= 0 {
		opts.Recent = defaultRecent
	}
	if opts.MessageBytes <= 0 {
		opts.MessageBytes = defaultMessageBytes
	}
	opts.MessageBytes = max(opts.MessageBytes, minMessageBytes)
	s := &Store{
		opts: opts, channels: map[fwd.Audience]*channel{}, zones: map[string]string{}, gone: map[string]bool{},
		replicas: map[*Replica]struct{}{},
	}
	s.epoch.Store(epoch)
	return s
}

// Epoch is that of the author of the present tables, see Succeed and Adopt.
func (s *Store) Epoch() uint64 { return s.epoch.Load() }

// Revision is the number of the last revision; 0 before the first.
func (s *Store) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// Publish makes one revision of all that is given, and returns its number; where nothing differs from what is there, no
// revision is made and the last number is returned. Updates of one audience apply in order. Only followers whose audiences
// or whose zone changed are woken. cause is when the oldest event that led to this was heard of; the zero time is unknown.
func (s *Store) Publish(updates []fwd.Update, zones []NodeZone, cause time.Time) uint64 {
	s.authors.Lock()
	defer s.authors.Unlock()
	parts := s.edited(s.part, slices.Concat(updates, placements(zones)))
	revision, wake := s.install(installation{parts: parts, zones: zones, cause: cause})
	wake()
	return revision
}

// edited computes the parts that differ after updates of those that present returns. Only authors change parts, so mu is
// needed for the look-up alone.
func (s *Store) edited(present func(fwd.Audience) *fwd.Part, updates []fwd.Update) map[fwd.Audience]*fwd.Part {
	before, after := map[fwd.Audience]*fwd.Part{}, map[fwd.Audience]*fwd.Part{}
	for _, u := range updates {
		part, ok := after[u.Audience]
		if !ok {
			part = present(u.Audience)
			before[u.Audience] = part
		}
		after[u.Audience] = part.With(u.Remove, u.Put)
	}
	maps.DeleteFunc(after, func(a fwd.Audience, p *fwd.Part) bool {
		d := fwd.DiffParts(before[a], p)
		return d.Empty()
	})
	return after
}

// part returns the current part of an audience, empty where there is none.
func (s *Store) part(a fwd.Audience) *fwd.Part {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.channels[a]; ok {
		return c.current.part
	}
	return &fwd.Part{}
}

// installation is a revision to be: the parts that differ, and who is where.
type installation struct {
	parts map[fwd.Audience]*fwd.Part
	zones []NodeZone
	cause time.Time
	// epoch of the author, 0 for the present one, and the number where it is another one's.
	epoch, number uint64
}

// install makes the revision visible and returns what wakes the followers, to be called without any lock.
func (s *Store) install(in installation) (uint64, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var woken []*Follower
	var replicas []*Replica
	touched := len(in.parts) > 0
	for _, a := range slices.SortedFunc(maps.Keys(in.parts), fwd.Audience.Compare) {
		c := s.channel(a)
		c.advance(in.parts[a], s.opts.Recent)
		for f := range c.followers {
			woken = f.mark(in.cause, woken)
		}
		for r := range s.replicas {
			if r.mark(a, in.cause) {
				replicas = append(replicas, r)
			}
		}
		s.release(a)
	}
	for _, z := range in.zones {
		var changed bool
		changed, woken = s.place(z, in.cause, woken)
		touched = touched || changed
	}
	switch {
	case in.number != 0:
		s.revision = in.number
	case touched:
		s.revision++
	}
	if in.epoch != 0 {
		s.epoch.Store(in.epoch)
	}
	return s.revision, func() {
		for _, f := range woken {
			f.wake()
		}
		for _, r := range replicas {
			r.wake()
		}
	}
}

// place applies one NodeZone and says whether anything changed. A node that is gone keeps its last zone while somebody
// follows it: an agent that outlives its Node object goes on with the endpoints it had, rather than with none.
func (s *Store) place(z NodeZone, cause time.Time, woken []*Follower) (bool, []*Follower) {
	before, known := s.zones[z.Node]
	followers := map[*Follower]struct{}{}
	if c, ok := s.channels[nodeAudience(z.Node)]; ok {
		followers = c.followers
	}
	if z.Gone {
		switch {
		case !known || s.gone[z.Node]:
			return false, woken
		case len(followers) > 0:
			s.gone[z.Node] = true
		default:
			delete(s.zones, z.Node)
		}
		return true, woken
	}
	delete(s.gone, z.Node)
	s.zones[z.Node] = z.Zone
	if before == z.Zone {
		return !known, woken
	}
	for f := range followers {
		f.move(z.Zone)
		woken = f.mark(cause, woken)
	}
	return true, woken
}

// channel returns the channel of an audience, made where there is none.
func (s *Store) channel(a fwd.Audience) *channel {
	c, ok := s.channels[a]
	if !ok {
		c = newChannel(a.Scope)
		s.channels[a] = c
	}
	return c
}

// release forgets a channel that is empty and that nobody follows: nodes and zones come and go.
func (s *Store) release(a fwd.Audience) {
	if c := s.channels[a]; c.current.part.Len() == 0 && len(c.followers) == 0 {
		delete(s.channels, a)
	}
}

// audiences returns the three audiences of a node, by scope. A node that the store does not know counts as one without a
// zone.
func (s *Store) audiences(node string) [numScopes]fwd.Audience {
	return [numScopes]fwd.Audience{
		fwd.Common: commonAudience(),
		fwd.Zone:   zoneAudience(s.zones[node]),
		fwd.Node:   nodeAudience(node),
	}
}

// Table returns the table of a node at the last revision, built anew: for debugging, offline tools and tests. It fails
// with fwd.ErrMalformed if somebody published bytes that are no table.
func (s *Store) Table(node string) (*fwd.Table, uint64, error) {
	s.mu.Lock()
	parts, revision := map[fwd.Scope]*fwd.Part{}, s.revision
	for _, a := range s.audiences(node) {
		if c, ok := s.channels[a]; ok {
			parts[a.Scope] = c.current.part
		}
	}
	s.mu.Unlock()
	t, err := fwd.NewTable(parts)
	if err != nil {
		return nil, revision, fmt.Errorf("build table of node %q: %w", node, err)
	}
	return t, revision, nil
}

// Stats are figures for metrics and tests.
type Stats struct {
	// Encoded counts the differences and snapshots encoded so far.
	Encoded uint64
	// Audiences, Followers, Nodes and CommonRows are what is held now.
	Audiences, Followers, Nodes, CommonRows int
}

// Stats returns the figures of this moment.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{
		Encoded: s.encoded.Load(), Audiences: len(s.channels), Followers: s.followers, Nodes: len(s.zones),
	}
	if c, ok := s.channels[commonAudience()]; ok {
		st.CommonRows = c.current.part.Len()
	}
	return st
}

func commonAudience() fwd.Audience          { return fwd.Audience{Scope: fwd.Common} }
func zoneAudience(zone string) fwd.Audience { return fwd.Audience{Scope: fwd.Zone, Name: zone} }
func nodeAudience(node string) fwd.Audience { return fwd.Audience{Scope: fwd.Node, Name: node} }
