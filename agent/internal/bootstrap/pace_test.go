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

// TestHerdOfNew: of 1,000 agents that start in the same second and know nothing, each asks at once, as a lone one would. Where
// the object is there and no controller, they ask at most 20 times a second from the next second on. Where there is no object
// they ask 2,000/t times at most in second t, a fifth more for chance, and 20 times a second after a minute.
func TestHerdOfNew(t *testing.T) {
	const agents, seconds, tenSeconds, atMost = 1000, 600, 10, 200
	for _, c := range []struct {
		name  string
		after urgency
		// from is the second from which on ten seconds have no more than 200 requests.
		from int
	}{{"object without controllers", urgent, 1}, {"no object", blind, 64}} {
		rng, start := rand.New(rand.NewPCG(1, 2)), time.Unix(1_000_000, 0)
		var each [seconds]int
		for range agents {
			p := pace{interval: testInterval, jitter: rng.Int64N}
			if first := p.next(start, blind); !first.Equal(start) {
				t.Fatalf("%s: the first request waits %v", c.name, first.Sub(start))
			}
			p.asked(false)
			for _, when := range p.ask(start, start.Add(seconds*time.Second-1), c.after) {
				each[when.Sub(start)/time.Second]++
			}
		}
		t.Logf("%s: after %d at once, %v a second", c.name, agents, each[:8])
		for s := 1; s+tenSeconds <= seconds; s++ {
			if most := 2*agents/s + 2*agents/s/5; s < c.from && each[s] > most {
				t.Errorf("%s: %d requests in second %d, want at most %d", c.name, each[s], s, most)
			}
			if n := total(each[s : s+tenSeconds]); s >= c.from && n > atMost {
				t.Errorf("%s: %d requests in ten seconds from second %d on", c.name, n, s)
			}
		}
		if each[0] > agents/50 { // the first request of each is not in it
			t.Errorf("%s: %d second requests in the first second", c.name, each[0])
		}
	}
}

func total(counts []int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// TestUrgencies: who knows nothing asks at once, soon, and ever less often, until it asks like all others; who is fine asks
// within twenty minutes.
func TestUrgencies(t *testing.T) {
	rng, start := rand.New(rand.NewPCG(1, 2)), time.Unix(1_000_000, 0)
	for range 100 {
		p := pace{interval: testInterval, jitter: rng.Int64N}
		windows := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 128 + 75, 128 + 2*75} // the ends, in seconds
		at := p.ask(start, start.Add(windows[len(windows)-1]*time.Second-1), blind)
		if len(at) != len(windows) || !at[0].Equal(start) {
			t.Fatalf("blind: %v", at)
		}
		for i, when := range at[1:] {
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
