package table

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/bench/contest"
	"github.com/fairlead/fairlead/test/bench/sheet"
	"github.com/fairlead/fairlead/test/bench/world"
)

const ms = time.Millisecond

func figures(change, cold time.Duration, rss int64, connect time.Duration) contest.Figures {
	return contest.Figures{
		Cold: contest.Taken{Whole: cold}, Changes: []contest.Taken{{Whole: change, Own: change / 2}}, Floors: []time.Duration{10 * ms},
		Services: []time.Duration{connect}, Endpoints: []time.Duration{connect - 1}, Directs: []time.Duration{10 * time.Microsecond},
		Memory: contest.Memory{Start: rss, End: rss, Peak: rss, Kernel: 1e6},
	}
}

func result(w world.World, ours, peer contest.Figures) contest.Result {
	return contest.Result{
		Mode: contest.Mode{Name: "some mode", Change: 60 * ms, Cold: time.Second}, Stage: contest.Stage{World: w},
		Of: map[contest.Side][]contest.Figures{contest.Ours: {ours}, contest.Peer: {peer}},
	}
}

// verdicts are the last cells of the rows of all tables: changes, starts, memory, packets.
func verdicts(t *testing.T, h Header, r contest.Result) []string {
	t.Helper()
	var words []string
	for line := range strings.Lines(Document(h, []contest.Result{r})) {
		if strings.HasPrefix(line, "| "+r.Mode.Name+" | ") {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
			words = append(words, strings.TrimSpace(cells[len(cells)-1]))
		}
	}
	return words
}

func TestVerdicts(t *testing.T) {
	good, peer := figures(50*ms, 900*ms, 30e6, 14*time.Microsecond), figures(500*ms, 9*time.Second, 200e6, 90*time.Microsecond)
	bad := figures(61*ms, 1100*ms, 36e6, 16*time.Microsecond)
	slow := figures(600*ms, 10*time.Second, 30e6, 14*time.Microsecond)
	floor := result(judged(), figures(12*ms, 900*ms, 30e6, 14*time.Microsecond), peer)
	floor.Mode.Change = 0
	above := result(judged(), figures(13*ms, 900*ms, 30e6, 14*time.Microsecond), peer)
	above.Mode.Change = 0
	alone := result(world.World{Services: 100_000, Endpoints: 2}, slow, peer)
	delete(alone.Of, contest.Peer)
	const no = "**no**"
	for name, c := range map[string]struct {
		result contest.Result
		quick  bool
		want   [4]string
	}{
		"met":              {result(judged(), good, peer), false, [4]string{"yes", "yes", "yes", "yes"}},
		"missed":           {result(judged(), bad, peer), false, [4]string{no, no, no, no}},
		"behind the peer":  {result(world.World{Services: 5_000, Endpoints: 2}, slow, peer), false, [4]string{no, no, sheet.None, sheet.None}},
		"ahead":            {result(world.World{Services: 5_000, Endpoints: 2}, bad, peer), false, [4]string{"yes", "yes", sheet.None, sheet.None}},
		"within the noise": {floor, false, [4]string{"yes", "yes", "yes", "yes"}},
		"above the floor":  {above, false, [4]string{no, "yes", "yes", "yes"}},
		"without a peer":   {alone, false, [4]string{sheet.None, sheet.None, sheet.None, sheet.None}},
		"large":            {result(large(), figures(50*ms, 900*ms, 91e6, 0), peer), false, [4]string{"yes", "yes", no, sheet.None}},
		"a quick run":      {result(judged(), bad, peer), true, [4]string{sheet.None, sheet.None, sheet.None, sheet.None}},
	} {
		if got := verdicts(t, Header{Quick: c.quick}, c.result); strings.Join(got, " ") != strings.Join(c.want[:], " ") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestRowsAreComplete: every row has as many cells as its head.
func TestRowsAreComplete(t *testing.T) {
	peer := figures(500*ms, 9*time.Second, 200e6, 90*time.Microsecond)
	alone := result(large(), peer, peer)
	delete(alone.Of, contest.Peer)
	cells, rows := 0, 0
	for line := range strings.Lines(Document(Header{}, []contest.Result{result(judged(), peer, peer), alone})) {
		switch n := strings.Count(line, "|"); {
		case !strings.HasPrefix(line, "|"):
			cells = 0
		case cells == 0:
			cells = n
		case n != cells:
			t.Errorf("%d cells, want %d: %s", n-1, cells-1, line)
		default:
			rows++
		}
	}
	if rows != 4*3 { // a rule and two results in four tables
		t.Errorf("%d rows", rows)
	}
}

func TestRatioAndSpan(t *testing.T) {
	if got := ratio([2]time.Duration{ms, 10 * ms}); got != "10.0" {
		t.Error(got)
	}
	if got := ratio([2]int64{3, 0}); got != sheet.None {
		t.Error(got)
	}
	for d, want := range map[time.Duration]string{0: sheet.None, 87 * time.Microsecond: "87 µs", 1234 * time.Microsecond: "1.23 ms", 99*ms + 900*time.Microsecond: "99.9 ms", 345 * ms: "345 ms", 12345 * ms: "12.3 s"} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestHeader(t *testing.T) {
	h := Header{Header: sheet.Header{Root: t.TempDir(), Command: "make bench"}}
	if err := h.Look(time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := h.Done(90 * time.Second); err != nil {
		t.Fatal(err)
	}
	text := Document(h, nil)
	for _, want := range []string{"`make bench` on 1970-01-01 00:00 UTC", "version unknown", "cores", "Linux", "took 2 minutes"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
