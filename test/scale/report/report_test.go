package report

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scale/measure"
)

// TestMerge: the section goes behind what is there, and takes the place of an older one.
// TestTargets: each limit is judged, on either side of it.
func TestTargets(t *testing.T) {
	took := func(d time.Duration) []time.Duration { return []time.Duration{d} }
	good := measure.Figures{
		Agents: 1000, Lone: measure.Changes{Revisions: 1, Wire: 80, Message: 40, Took: took(20 * time.Millisecond), Controller: 10 * time.Millisecond},
		Stalled: measure.Changes{Took: took(21 * time.Millisecond)}, BatchWire: 20, BatchCPU: time.Millisecond, RawWrite: 8 * time.Microsecond, Memory: 30_000,
		Warm: measure.Reconnect{Took: time.Second, Bytes: 2000}, Flood: measure.Flood{Published: 900, Follower: 50 * time.Microsecond},
	}
	bad := measure.Figures{
		Agents: 1000, Lone: measure.Changes{Revisions: 1, Wire: 91, Message: 49, Took: took(121 * time.Millisecond), Controller: 30 * time.Millisecond},
		Stalled: measure.Changes{Took: took(200 * time.Millisecond)}, BatchWire: 25, BatchCPU: 2 * time.Millisecond, RawWrite: 8 * time.Microsecond, Memory: 50_000,
		Warm: measure.Reconnect{Took: 4 * time.Second, Bytes: 5000}, Flood: measure.Flood{Published: 400, Follower: 200 * time.Microsecond},
	}
	for _, c := range []struct {
		figures measure.Figures
		verdict string
	}{{good, "yes"}, {bad, "**no**"}} {
		rows := targets([]measure.Figures{c.figures}).rows
		if len(rows) != 13 {
			t.Errorf("%d rows", len(rows))
		}
		for _, r := range rows {
			if r[3] != c.verdict {
				t.Errorf("%v, want %s", r, c.verdict)
			}
		}
	}
	if rows := targets([]measure.Figures{{Agents: 100}}).rows; len(rows) != 2 {
		t.Errorf("100 agents are judged: %v", rows)
	}
}

// TestModel: figures made of a line give the line back, and carry on along it.
func TestModel(t *testing.T) {
	figures := func(n int) measure.Figures {
		return measure.Figures{
			Agents: n, Lone: measure.Changes{Wire: 80, Controller: time.Millisecond + time.Duration(n)*10*time.Microsecond},
			BatchCPU: time.Duration(n) * time.Microsecond, Memory: 40_000, EmptyMemory: 50e6,
			Warm: measure.Reconnect{Took: time.Duration(n) * time.Millisecond, Bytes: 2000},
		}
	}
	all := []measure.Figures{figures(1000), figures(100)}
	c, ok := fit(all)
	if !ok || c.change != time.Millisecond || c.node != 10*time.Microsecond || c.batch != time.Microsecond || c.comeback != time.Millisecond {
		t.Errorf("fitted %+v, %v", c, ok)
	}
	rows := model(all).rows
	if len(rows) != 4 {
		t.Fatalf("%d rows", len(rows))
	}
	// 5,000 agents: 51 ms a change, so 1.02 cores at 20 a second; 1 s for their sake, of which a replica has 0.48.
	if got := strings.Join(rows[1], " "); got != "5,000 400.0 kB 8000.0 kB/s 1.02 3 1,667 20 200 350.0 MB 10.0 MB 1.67 s" {
		t.Errorf("5,000 agents: %s", got)
	}
	if _, ok := fit(all[:1]); ok {
		t.Error("a line through one point")
	}
}
