package table

import "time"

// cursor is what the positions of agents and of replicas have in common: how far they have come, and whether there is more.
type cursor struct {
	store   *Store
	changed chan struct{}

	// Store.mu guards the rest.
	// number is that of the last revision taken, 0 before the first.
	number uint64
	// dirty: something was published that has not been taken. cause is the oldest of it.
	dirty, closed bool
	cause         time.Time
}

// newCursor returns one that has taken nothing.
func newCursor(s *Store) cursor {
	c := cursor{store: s, changed: make(chan struct{}, 1), dirty: true}
	c.changed <- struct{}{} // room for one: does not block
	return c
}

// Changed delivers one value when there is something to take, the first one at once.
func (c *cursor) Changed() <-chan struct{} { return c.changed }

// Position says how far the follower is: it holds all that concerns it up to revision through, provided that the one
// numbered last, which it took last, has reached it. last is 0 before the first Next.
func (c *cursor) Position() (through, last uint64) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.through(), c.number
}

// through is as in Position. The caller has Store.mu.
func (c *cursor) through() uint64 {
	if c.dirty {
		return c.number
	}
	return c.store.revision
}

// wake is called without any lock.
func (c *cursor) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}
