package bootstrap

import "time"

// urgency is how much an answer of the API server matters.
type urgency int

const (
	// calm: a controller is followed; a look now and then keeps the bundle fresh for the next connection.
	calm urgency = iota
	// urgent: no known controller answers, or none can be trusted.
	urgent
	// blind: nothing is known that could be tried.
	blind
)

// calmInterval bounds the time between two looks of an agent that follows a controller. It is a fraction of the hour for which a
// new CA is published before it signs anything.
const calmInterval = 20 * time.Minute

// pace says when to ask: once in each window of time, at a random moment of it. Agents that fail together are thus spread
// evenly from the first request on, which a back-off would only do after some rounds. The first request of an agent that
// knows nothing at all is made at once, besides. It has no clock: times are given to it.
type pace struct {
	interval time.Duration // of a window
	jitter   func(n int64) int64

	// at is when to ask next, for the urgency that it was chosen for, and window where its window begins; at is zero when
	// nothing is chosen yet.
	at, window time.Time
	chosen     urgency
	// free is when the window that was used last is over; zero before the first request.
	free time.Time
}

// next returns when to ask. The answer changes when the urgency does, and after asked.
func (p *pace) next(now time.Time, u urgency) time.Time {
	if !p.at.IsZero() && p.chosen == u {
		return p.at
	}
	p.chosen, p.window = u, now
	if p.free.After(now) {
		p.window = p.free
	}
	switch {
	case u == blind && p.free.IsZero():
		p.at, p.window = now, now.Add(-p.interval)
	case u == calm:
		p.at = now.Add(calmInterval/2 + p.random(calmInterval/2))
	default:
		p.at = p.window.Add(p.random(p.interval))
	}
	return p.at
}

// asked says that the request was made.
func (p *pace) asked() { p.free, p.at = p.window.Add(p.interval), time.Time{} }

func (p *pace) random(d time.Duration) time.Duration { return time.Duration(p.jitter(int64(d))) }
