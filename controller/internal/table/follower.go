package table

import (
	"time"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Follower is a position in the store: what one reader has taken. Its methods are safe for concurrent use; Next is meant
// for one goroutine.
type Follower struct {
	cursor
	node string

	// Store.mu guards the rest.
	audiences [numScopes]fwd.Audience
	// held are the parts as the follower took them last; nil is unknown: a snapshot is sent, or what resume leaves of it.
	held   [numScopes]*fwd.Part
	resume resumption
}

// Follow starts to follow the table of a node. The first Next gives what separates held, of which the digests count and
// which may be nil, from the present; a Question before it may spare most of that. Close must be called in the end.
func (s *Store) Follow(node string, held *fairleadv1.Held) *Follower {
	f := &Follower{cursor: newCursor(s), node: node}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.audiences = s.audiences(node)
	digests := [numScopes]uint64{
		fwd.Common: held.GetCommonDigest(), fwd.Zone: held.GetZoneDigest(), fwd.Node: held.GetNodeDigest(),
	}
	for i, a := range f.audiences {
		c := s.channel(a)
		c.followers[f] = struct{}{}
		if f.held[i] = c.held(digests[i]); f.held[i] == nil {
			f.resume.ask(c, held, digests[i])
		}
	}
	s.followers++
	return f
}

// NeedsSnapshot reports whether the next Next carries the whole common part, which is most of a table. While a Question
// about it waits for its Answer that is not said.
func (f *Follower) NeedsSnapshot() bool {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	return f.held[fwd.Common] == nil && f.resume.bits[fwd.Common] == 0 && f.resume.sums[fwd.Common] == ""
}

// Next takes all that was published since the last call, as the messages of one revision to be sent in order, and moves
// the position. There are none when there is nothing to take. The first call always gives a revision, which may be without
// parts. The parts are a consistent cut at the revision that Position now gives as last.
//
// cause is when the oldest change in it was heard of; zero for the first revision and where it is unknown.
func (f *Follower) Next() (messages []Message, cause time.Time) {
	r := f.take()
	if r == nil {
		return nil, time.Time{}
	}
	return f.store.messages(r), r.cause
}

// take moves the position; nil is nothing to take.
func (f *Follower) take() *revision {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.dirty || f.closed {
		return nil
	}
	var changes [numScopes]*change
	for i, a := range f.audiences {
		c := s.channels[a]
		if c.current.part != f.held[i] {
			changes[i] = c.changeFrom(origin{part: f.held[i], sums: f.resume.sums[i]})
			f.held[i] = c.current.part
		}
	}
	f.resume = resumption{}
	if !s.last.same(s.revision, f.cause, changes) {
		s.last = &revision{number: s.revision, cause: f.cause, changes: changes}
	}
	f.number, f.dirty, f.cause = s.revision, false, time.Time{}
	return s.last
}

// Heartbeat is what a fairlead.v1.Heartbeat says: the revision up to which everything was taken, and the digest of the
// table at the position.
func (f *Follower) Heartbeat() (number, digest uint64) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	for _, p := range f.held {
		if p != nil {
			digest += p.Digest()
		}
	}
	return f.through(), digest
}

// Close ends it; more than once is allowed. Changed delivers nothing any more.
func (f *Follower) Close() {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	s.followers--
	for _, a := range f.audiences {
		delete(s.channels[a].followers, f)
	}
	if s.gone[f.node] && len(s.channels[nodeAudience(f.node)].followers) == 0 {
		delete(s.gone, f.node)
		delete(s.zones, f.node)
	}
	for _, a := range f.audiences {
		s.release(a)
	}
}

// mark notes a change, and adds f to woken if it was not awake.
func (f *Follower) mark(cause time.Time, woken []*Follower) []*Follower {
	if f.number > 0 && !cause.IsZero() && (f.cause.IsZero() || cause.Before(f.cause)) {
		f.cause = cause
	}
	if f.dirty {
		return woken
	}
	f.dirty = true
	return append(woken, f)
}

// move takes f to another zone; what it holds of the old one is what the next difference starts from.
func (f *Follower) move(zone string) {
	s, old := f.store, f.audiences[fwd.Zone]
	f.audiences[fwd.Zone] = zoneAudience(zone)
	delete(s.channels[old].followers, f)
	s.release(old)
	s.channel(f.audiences[fwd.Zone]).followers[f] = struct{}{}
}
