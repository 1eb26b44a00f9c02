package table

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/bench/contest"
	"github.com/fairlead/fairlead/test/bench/sheet"
	"github.com/fairlead/fairlead/test/bench/world"
)

func TestIPVS(t *testing.T) {
	at := func(services int, ours, peer contest.Figures) contest.Result {
		return result(world.World{Services: services, Endpoints: 2}, ours, peer)
	}
	peer := figures(2*time.Second, 40*time.Second, 100e6, 60*time.Microsecond)
	small := at(1000, figures(ms, 2*time.Second, 30e6, 50*time.Microsecond), figures(time.Second, 40*time.Second, 100e6, 60*time.Microsecond))
	for name, c := range map[string]struct {
		ours  contest.Figures
		quick bool
		want  string
	}{
		"met":               {figures(2*ms, 2*time.Second, 30e6, 50*time.Microsecond), false, "yes"},
		"a change too slow": {figures(101*ms, 2*time.Second, 30e6, 50*time.Microsecond), false, "**no**"},
		"a start too slow":  {figures(2*ms, 2001*ms, 30e6, 50*time.Microsecond), false, "**no**"},
		"not judged":        {figures(2*ms, 2*time.Second, 30e6, 50*time.Microsecond), true, sheet.None},
	} {
		text := IPVS(Header{Quick: c.quick}, []contest.Result{small, at(5000, c.ours, peer)})
		var last string
		columns := map[int]bool{}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "| ") {
				last = strings.TrimSpace(line)
				columns[strings.Count(line, "|")] = true
			}
		}
		if !strings.HasSuffix(last, "| "+c.want+" |") || !strings.HasPrefix(last, "| 5,000 × 2 |") || len(columns) != 1 {
			t.Errorf("%s: last row %q, numbers of columns %v, want %q", name, last, columns, c.want)
		}
	}
	grown := IPVS(Header{}, []contest.Result{small, at(5000, figures(2*ms, time.Second, 30e6, 50*time.Microsecond), peer)})
	if want := "From 1,000 × 2 to 5,000 × 2, the time of a change grows 2.0 times for fairlead-agent and 2.0 times for kube-proxy."; !strings.Contains(grown, want) {
		t.Errorf("no %q in\n%s", want, grown)
	}
	alone := at(5001, figures(2*ms, time.Second, 30e6, 50*time.Microsecond), peer)
	delete(alone.Of, contest.Peer)
	if got := IPVS(Header{}, []contest.Result{alone}); !strings.Contains(got, "| – | – | – | 1 s (–) | – | – | 10.0 µs | +40.0 µs | – |") {
		t.Errorf("without kube-proxy:\n%s", got)
	}
	if got := IPVS(Header{}, nil); got != "" {
		t.Errorf("nothing was measured: %q", got)
	}
}
