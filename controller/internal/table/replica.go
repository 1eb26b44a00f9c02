package table

import (
	"maps"
	"slices"
	"time"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Replica is a position in the store of one who takes the rows of everybody, with the audiences they are for. Its methods
// are safe for concurrent use; Next is meant for one goroutine.
type Replica struct {
	cursor

	// Store.mu guards the rest.
	// held are the parts as they were taken last, but for empty ones.
	held map[fwd.Audience]*fwd.Part
	// stale are the audiences that have changed since.
	stale map[fwd.Audience]struct{}
	// took: the first revision was taken.
	took   bool
	resume resumption
}

// FollowAll starts to follow all tables. The first Next gives all of them, but for the common part where held names a
// version of it that is known, or what a Question finds to be equal of it. Revisions to come have higher numbers than held has. Close must be called in the end.
func (s *Store) FollowAll(held *fairleadv1.Held) *Replica {
	r := &Replica{cursor: newCursor(s), held: map[fwd.Audience]*fwd.Part{}, stale: map[fwd.Audience]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision = max(s.revision, held.GetRevision())
	common := commonAudience()
	if c, ok := s.channels[common]; ok {
		part := c.held(held.GetCommonDigest())
		if part != nil && part.Len() > 0 {
			r.held[common] = part
		} else if part == nil {
			r.resume.ask(c, held, held.GetCommonDigest())
		}
	}
	for a := range s.channels {
		r.stale[a] = struct{}{}
	}
	s.replicas[r] = struct{}{}
	return r
}

// NeedsSnapshot is false: replicas are few, and agents wait for them.
func (r *Replica) NeedsSnapshot() bool { return false }

// passage is the way of one audience's part to the present.
type passage struct {
	audience fwd.Audience
	change   *change // nil: as it is held
}

// Next takes all that was published since the last call, as Follower.Next does.
func (r *Replica) Next() (messages []Message, cause time.Time) {
	rev, whole, passages := r.take()
	if rev == nil {
		return nil, time.Time{}
	}
	var entries [][]byte
	for _, p := range passages {
		if p.change == nil {
			entries = append(entries, entry(p.audience, nil))
			continue
		}
		for _, section := range r.store.encode(p.change) {
			entries = append(entries, entry(p.audience, section))
		}
	}
	rev.whole = whole
	return rev.cut(entries, r.store.opts.MessageBytes), rev.cause
}

// take moves the position; nil is nothing to take.
func (r *Replica) take() (rev *revision, whole bool, passages []passage) {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.dirty || r.closed {
		return nil, false, nil
	}
	for _, a := range slices.SortedFunc(maps.Keys(r.stale), fwd.Audience.Compare) {
		c := s.channel(a)
		from, to := r.held[a], c.current.part
		switch {
		case from == to && from != nil && !r.took:
			passages = append(passages, passage{audience: a})
		case from == to || from == nil && to.Len() == 0:
		default:
			way := origin{part: from}
			if a == commonAudience() {
				way.sums = r.resume.sums[fwd.Common]
			}
			passages = append(passages, passage{a, c.changeFrom(way)})
		}
		if r.held[a] = to; to.Len() == 0 {
			delete(r.held, a)
		}
		s.release(a)
	}
	rev, whole = &revision{number: s.revision, cause: r.cause}, !r.took
	clear(r.stale)
	r.resume = resumption{}
	r.number, r.dirty, r.took, r.cause = s.revision, false, true, time.Time{}
	return rev, whole, passages
}

// Heartbeat is as Follower.Heartbeat; the digest is the sum of all parts'.
func (r *Replica) Heartbeat() (number, digest uint64) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	for _, p := range r.held {
		digest += p.Digest()
	}
	return r.through(), digest
}

// Close ends it; more than once is allowed.
func (r *Replica) Close() {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.closed = true
	delete(r.store.replicas, r)
}

// mark notes that an audience has a new part, and returns whether r must be woken. The caller has Store.mu.
func (r *Replica) mark(a fwd.Audience, cause time.Time) (wake bool) {
	if r.took && !cause.IsZero() && (r.cause.IsZero() || cause.Before(r.cause)) {
		r.cause = cause
	}
	r.stale[a] = struct{}{}
	wake, r.dirty = !r.dirty, true
	return wake
}
