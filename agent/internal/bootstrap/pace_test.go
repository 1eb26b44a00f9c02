package bootstrap

import (
	"math/rand/v2"
	"testing"
	"time"
)

// testInterval is the default of --lookup-interval.
const testInterval = 75 * time.Second

// ask follows a pace from a time on and returns when it asks, up to an end.
func (p *pace) ask(from, to time.Time, u urgency) []time.Time {
	var at []time.Time
	for now := from; ; {
		if now = p.next(now, u); now.After(to) {
			return at
		}
		at = append(at, now)
		p.asked(false)
	}
}

// TestHerd: 1,000 agents that lose all controllers in the same second ask at most 20 times a second, from the first second on
// and for good: in every ten seconds no more than 200 times. Each asks once in each window.
func TestHerd(t *testing.T) {
	rng, start := rand.New(rand.NewPCG(1, 2)), time.Unix(1_000_000, 0)
	const seconds = 1800
	var each [seconds]int
	total := 0
	for range 1000 {
		p := pace{interval: testInterval, jitter: rng.Int64N}
		p.next(start.Add(-time.Hour), calm) // as it was before
		at := p.ask(start, start.Add(seconds*time.Second-1), urgent)
		for i, when := range at {
			each[when.Sub(start)/time.Second]++
			if window := int(when.Sub(start) / testInterval); window != i {
				t.Fatalf("request %d is in window %d", i, window)
			}
		}
		total += len(at)
	}
	if want := seconds * 1000 / int(testInterval/time.Second); total != want {
		t.Errorf("%d requests, want %d", total, want)
	}
	most, sum := 0, 0
	for i := range each {
		if sum += each[i]; i >= 10 {
			sum -= each[i-10]
		}
		most = max(most, sum)
	}
	t.Logf("%.1f a second on average, at most %d in ten seconds", float64(total)/seconds, most)
	if most > 200 {
		t.Errorf("%d requests in ten seconds", most)
	}
}

// TestUrgencies: who knows nothing asks at once, soon, and ever less often, until it asks like all others; who is fine asks
// within twenty minutes.
func TestUrgencies(t *testing.T) {
	rng, start := rand.New(rand.NewPCG(1, 2)), time.Unix(1_000_000, 0)
	for range 100 {
		p := pace{interval: testInterval, jitter: rng.Int64N}
		windows := []time.Duration{0, 0, 1, 3, 7, 15, 31, 63, 63 + 64, 63 + 64 + 75, 63 + 64 + 2*75} // the ends, in seconds
		at := p.ask(start, start.Add(windows[len(windows)-1]*time.Second-1), blind)
		if len(at) != len(windows)-1 {
			t.Fatalf("blind: %v", at)
		}
		for i, when := range at {
			if from, to := start.Add(windows[i]*time.Second), start.Add(windows[i+1]*time.Second); when.Before(from) || when.After(to) {
				t.Fatalf("blind: request %d at %v, want it from %v to %v", i, when.Sub(start), from.Sub(start), to.Sub(start))
			}
		}
		if next := p.next(start, urgent); next.Before(start.Add(windows[len(windows)-1] * time.Second)) {
			t.Errorf("a window is used twice, at %v", next.Sub(start))
		}
		p = pace{interval: testInterval, jitter: rng.Int64N}
		p.next(start, blind)
		p.asked(true)
		if at := p.ask(start, start.Add(10*testInterval), blind); len(at) > 10 {
			t.Errorf("blind, and the API server is busy: %d requests in %v", len(at), 10*testInterval)
		}
		p = pace{interval: testInterval, jitter: rng.Int64N}
		last := start
		for _, when := range p.ask(start, start.Add(5*time.Hour), calm) {
			if gap := when.Sub(last); gap < calmInterval/2 || gap > calmInterval {
				t.Fatalf("calm: %v", gap)
			}
			last = when
		}
		if p.next(last, calm) != p.next(last.Add(time.Minute), calm) {
			t.Error("the time to ask moves away")
		}
		if wait := p.next(last.Add(time.Second), urgent).Sub(last); wait > testInterval+time.Second {
			t.Errorf("the first urgent request waits %v", wait)
		}
	}
}
