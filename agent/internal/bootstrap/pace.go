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

// firstWindow is the first window of an agent that knows nothing, after its first request, which stands for one as long.
const firstWindow = time.Second

// pace says when to ask: once in each window of time, at a random moment of it. Agents that fail together are thus spread
// evenly from the first request on, which a back-off would only do after some rounds.
//
// An agent that knows nothing at all is one of a new cluster, whose controllers are about to start. Its first request is made
// at once, nothing in the second after it, and then its windows grow from a second by doubling, so that it waits for about as
// long again as controllers took: on average less, and at most for three times as long. Who finds others so soon asks often:
// of n agents that start together each asks in the first second, and then n/t to 2n/t of them ask in second t, up to the
// interval. Any of them that learns an address, though nobody answers there, is as calm as the others. It has no clock: times
// are given to it.
type pace struct {
	interval time.Duration // of a window
	jitter   func(n int64) int64

	// at is when to ask next, for the urgency that it was chosen for, and window where its window of a length begins; at is
	// zero when nothing is chosen yet.
	at, window time.Time
	length     time.Duration
	chosen     urgency
	// free is when the window that was used last is over; zero before the first request.
	free time.Time
	// early is the length of the next window while nothing is known, up to interval.
	early time.Duration
}

// next returns when to ask. The answer changes when the urgency does, and after asked.
func (p *pace) next(now time.Time, u urgency) time.Time {
	if !p.at.IsZero() && p.chosen == u {
		return p.at
	}
	p.chosen, p.window, p.length = u, now, p.interval
	if p.free.After(now) {
		p.window = p.free
	}
	switch u {
	case calm:
		p.at = now.Add(calmInterval/2 + p.random(calmInterval/2))
		return p.at
	case blind:
		p.length = p.early
	case urgent:
	}
	p.at = p.window.Add(p.random(p.length))
	return p.at
}

// asked says that the request was made, and whether the API server was too busy for it, which ends all hurry.
func (p *pace) asked(busy bool) {
	p.free, p.at = p.window.Add(p.length), time.Time{}
	switch {
	case busy:
		p.early = p.interval
	case p.chosen == blind && p.early == 0:
		p.early = min(firstWindow, p.interval)
		p.free = p.window.Add(p.early)
	case p.chosen == blind:
		p.early = min(2*p.early, p.interval)
	}
}

// random returns a duration in [0, d); 0 where there is none.
func (p *pace) random(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(p.jitter(int64(d)))
}
