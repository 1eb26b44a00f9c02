// Package store holds the agent's current forwarding table: the newest one that was verified.
//
// Input are verified versions from internal/client; output is, for the loop in internal/proxy, the newest version together
// with all that changed since the loop last took one. Latest wins: there is no queue, a version that was overtaken before
// it was taken is never seen. Whoever else needs the table (health, metrics, and later a checkpoint on disk) reads Current.
package store

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Version is a verified table and where it came from. It is immutable.
type Version struct {
	Table *fwd.Table
	// Epoch and Revision are those of its author, as in fairlead.v1.Held.
	Epoch, Revision uint64
	// Cause is when the controller heard of the oldest change in it; zero where a resume rather than a change caused it.
	Cause time.Time
}

// Store holds one Version. It is safe for concurrent use.
type Store struct {
	changed chan struct{}

	mu      sync.Mutex // guards what follows
	current Version
	// touched and cause add up since the last Take; fresh says that there was a Put since.
	touched fwd.Changed
	cause   time.Time
	fresh   bool
}

// New returns a Store without a version.
func New() *Store { return &Store{changed: make(chan struct{}, 1)} }

// Put makes v the current version. touched is what differs, in the typed view, from the version before; for the first
// version it is what differs from the empty table. The same table under a new number is a Put too: its number has to be
// reported. One goroutine puts.
func (s *Store) Put(v Version, touched fwd.Changed) {
	s.put(v, touched)
	select {
	case s.changed <- struct{}{}:
	default: // one is waiting already
	}
}

func (s *Store) put(v Version, touched fwd.Changed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.touched, s.fresh = v, s.touched.Union(touched), true
	if s.cause.IsZero() || !v.Cause.IsZero() && v.Cause.Before(s.cause) {
		s.cause = v.Cause
	}
}

// Current returns the current version; ok is false before the first.
func (s *Store) Current() (v Version, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.current.Table != nil
}

// Changed delivers a value when there is something to Take. One goroutine receives.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Take returns the current version, with the oldest Cause since the last Take, and what was touched since then. ok is
// false when nothing was put since.
func (s *Store) Take() (v Version, touched fwd.Changed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh {
		return Version{}, fwd.Changed{}, false
	}
	v, touched = s.current, s.touched
	v.Cause = s.cause
	s.touched, s.cause, s.fresh = fwd.Changed{}, time.Time{}, false
	return v, touched, true
}
