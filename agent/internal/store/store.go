// Package store holds the agent's current forwarding table: the newest one that was verified.
//
// Input are verified versions from internal/client; output is, for the loop in internal/proxy, the newest version together
// with all that changed since the loop last took one. Latest wins: there is no queue, a version that was overtaken before
// it was taken is never seen. Whoever else needs the table (health, metrics) reads Current. A table from a checkpoint can be
// held before the first version: as what a controller resumes from, and on demand as what the loop takes for the time being.
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
	// live says that there was a Put ever.
	live bool
	// offered is what the next Take gives instead of current; nil is nothing. apart is what differs between the two.
	offered *fwd.Table
	apart   fwd.Changed
}

// New returns a Store without a version.
func New() *Store { return &Store{changed: make(chan struct{}, 1)} }

// Put makes v the current version. touched is what differs, in the typed view, from the version before; for the first
// version it is what differs from the empty table. The same table under a new number is a Put too: its number has to be
// reported. One goroutine puts.
func (s *Store) Put(v Version, touched fwd.Changed) {
	s.put(v, touched)
	s.signal()
}

func (s *Store) signal() {
	select {
	case s.changed <- struct{}{}:
	default: // one is waiting already
	}
}

func (s *Store) put(v Version, touched fwd.Changed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.touched, s.fresh, s.live, s.offered = v, s.touched.Union(touched), true, true, nil
	if s.cause.IsZero() || !v.Cause.IsZero() && v.Cause.Before(s.cause) {
		s.cause = v.Cause
	}
}

// Hold makes v the current version before the first Put, without giving it to Take: it is what a controller is told of, and
// what its differences are relative to. touched is what differs from the empty table. Nothing was taken or put before.
func (s *Store) Hold(v Version, touched fwd.Changed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.touched = v, touched
}

// Offer gives t to Take in place of what Hold got, as a Version without numbers; differs is what differs between the two.
// Once there was a Put it does nothing and returns false: nothing from a disk replaces what a controller sent.
func (s *Store) Offer(t *fwd.Table, differs fwd.Changed) bool {
	if !s.offer(t, differs) {
		return false
	}
	s.signal()
	return true
}

func (s *Store) offer(t *fwd.Table, differs fwd.Changed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		return false
	}
	s.offered, s.apart, s.fresh = t, differs, true
	return true
}

// Current returns the newest verified version, be it only held; ok is false before the first.
func (s *Store) Current() (v Version, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.current.Table != nil
}

// Changed delivers a value when there is something to Take. One goroutine receives.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Take returns the current version, or an offered one, with the oldest Cause since the last Take, and what was touched since
// then. ok is false when nothing was put since.
func (s *Store) Take() (v Version, touched fwd.Changed, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh {
		return Version{}, fwd.Changed{}, false
	}
	v, touched = s.current, s.touched
	v.Cause = s.cause
	s.touched, s.cause, s.fresh = fwd.Changed{}, time.Time{}, false
	if s.offered != nil {
		v = Version{Table: s.offered}
		s.touched, s.offered = s.apart, nil // the next Put is relative to what is held
	}
	return v, touched, true
}
