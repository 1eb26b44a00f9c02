package stream

import "time"

// What an address may do whose connections are of no use: misses at once, and this many a second on average. Others wait
// their turn, and are closed at once where that takes too long.
const (
	missesAtOnce    = 32
	missesPerSecond = 10
	longestTurn     = 5 * time.Second // well within handshakeWithin
)

// standing is how an address has behaved: a bucket that each useless connection empties, and time fills. An address in good
// standing waits for nothing, however many connections come from it. It has no clock. The zero value is a good one.
type standing struct {
	misses float64 // at a time
	at     time.Time
}

func (s *standing) settle(now time.Time) {
	s.misses = max(0, s.misses-missesPerSecond*now.Sub(s.at).Seconds())
	s.at = now
}

// good reports whether nothing needs to be remembered.
func (s *standing) good(now time.Time) bool {
	s.settle(now)
	return s.misses == 0
}

// turn returns how long a new connection has to wait. paid: it counts as a miss already, until forgive.
func (s *standing) turn(now time.Time) (wait time.Duration, paid bool) {
	s.settle(now)
	over := s.misses - missesAtOnce
	if over < 0 {
		return 0, false
	}
	wait = time.Duration((over + 1) / missesPerSecond * float64(time.Second))
	if wait <= longestTurn {
		s.misses++
	}
	return wait, true
}

// miss counts a connection that was of no use.
func (s *standing) miss(now time.Time) {
	s.settle(now)
	s.misses = min(s.misses+1, missesAtOnce+missesPerSecond*longestTurn.Seconds())
}

// forgive takes the last miss back.
func (s *standing) forgive(now time.Time) {
	s.settle(now)
	s.misses = max(0, s.misses-1)
}
