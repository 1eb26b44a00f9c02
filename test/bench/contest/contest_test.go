package contest

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/bench/site"
	"github.com/fairlead/fairlead/test/bench/world"
	"github.com/fairlead/fairlead/test/cluster/binaries"
)

// TestRun measures a very small cluster in all modes, with the real programs, in real namespaces.
func TestRun(t *testing.T) {
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := binaries.Ensure(t.Context(), root, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	agent := filepath.Join(root, "bin", "fairlead-agent")
	if _, err := os.Stat(agent); err != nil {
		t.Fatalf("%v: run make build", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	var progress strings.Builder
	results, err := Run(ctx, Config{
		Modes: Modes(), Plan: []Stage{Stage{Rounds: 1, Changes: 2, Connections: 40}.at(20, 2)}, Dir: t.TempDir(), Progress: &progress,
		Programs: map[string]string{"kube-proxy": programs["kube-proxy"], "fairlead-agent": agent},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		for _, side := range []Side{Ours, Peer} {
			f := r.Of[side][0]
			if len(f.Changes) != 4 || len(f.Services) != 40 || len(f.Directs) != 40 || len(f.Floors) != 2 {
				t.Errorf("%s, %v: %+v", r.Mode.Name, side, f)
			}
			for _, taken := range append(f.Changes, f.Cold) {
				if taken.Own <= 0 || taken.Whole <= 0 || taken.Whole > startLimit {
					t.Errorf("%s, %v: %+v", r.Mode.Name, side, taken)
				}
			}
			if m := f.Memory; m.Start < 1<<20 || m.End < 1<<20 || m.Peak < m.End || m.Kernel < 10<<10 {
				t.Errorf("%s, %v: %+v", r.Mode.Name, side, m)
			}
		}
	}
	if got := strings.Count(progress.String(), "\n"); got != 2*len(Modes()) {
		t.Errorf("%d lines of progress:\n%s", got, progress.String())
	}
}

// TestLiesAreFound: a program that says that the kernel has it, while packets do not get there, fails the run.
func TestLiesAreFound(t *testing.T) {
	s, err := site.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	v := visit{setting: setting{site: s, world: world.World{Services: 3, Endpoints: 2}}}
	if err := v.reached(1, false); err == nil {
		t.Error("a Service is reached without a proxy")
	}
	endpoint := v.world.EndpointsOf(2)[1]
	if from, err := s.Ask(endpoint); err != nil || from != endpoint {
		t.Errorf("%v answered instead of %v: %v", from, endpoint, err)
	}
}

// TestAProgramThatEnds is reported with what it said.
func TestAProgramThatEnds(t *testing.T) {
	s, err := site.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var lines []string
	p, err := start(command{site: s, dir: t.TempDir(), argv: []string{"/bin/sh", "-c", "echo cause >&2; exit 1"}, line: func(l string) { lines = append(lines, l) }})
	if err != nil {
		t.Fatal(err)
	}
	<-p.done
	if err := p.ended(); !strings.Contains(err.Error(), "cause") || !slices.Equal(lines, []string{"cause"}) {
		t.Errorf("%v, lines %q", err, lines)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

func TestParseSyncEnd(t *testing.T) {
	for line, want := range map[string]time.Duration{
		`I1121 11:01:28.3 1 proxier.go:662] "SyncProxyRules complete" ipFamily="IPv4" elapsed="1.5s"`: 1500 * time.Millisecond,
		`I1121 11:01:28.3 1 proxier.go:694] "syncProxyRules complete" elapsed="2ms" ipFamily="IPv4"`:  2 * time.Millisecond,
		`I1121 11:01:28.3 1 proxier.go:662] "SyncProxyRules complete" ipFamily="IPv6" elapsed="1.5s"`: 0,
		`I1121 11:01:28.3 1 proxier.go:668] "Syncing iptables rules" ipFamily="IPv4" fullSync=true`:   0,
		`"SyncProxyRules complete" ipFamily="IPv4"`:                                                   0,
	} {
		if got, ok := parseSyncEnd(line); got != want || ok != (want > 0) {
			t.Errorf("%s: %v, %v", line, got, ok)
		}
	}
}

// TestWaitLeavesOutPassesThatBeganBefore: such a pass may have missed the change.
func TestWaitLeavesOutPassesThatBeganBefore(t *testing.T) {
	k := &kubeProxy{synced: make(chan syncEnd, 2)}
	now := time.Now()
	k.synced <- syncEnd{at: now.Add(time.Second), took: 2 * time.Second}
	k.synced <- syncEnd{at: now.Add(3 * time.Second), took: 2 * time.Second}
	k.process = &process{done: make(chan struct{})}
	if end, err := k.wait(t.Context(), now); err != nil || !end.at.Equal(now.Add(3*time.Second)) {
		t.Errorf("%v, %v", end, err)
	}
}

func TestQuantile(t *testing.T) {
	values := []int{5, 1, 4, 2, 3}
	if Median(values) != 3 || Quantile(values, 0.99) != 5 || Quantile(values, 0) != 1 || Median([]int(nil)) != 0 {
		t.Error(Median(values), Quantile(values, 0.99), Quantile(values, 0))
	}
	if !slices.Equal(values, []int{5, 1, 4, 2, 3}) {
		t.Error("the values were sorted in place")
	}
}

func TestOrderAlternates(t *testing.T) {
	if !slices.Equal(order(0, true), []Side{Peer, Ours}) || !slices.Equal(order(1, true), []Side{Ours, Peer}) || !slices.Equal(order(0, false), []Side{Ours}) {
		t.Error(order(0, true), order(1, true), order(0, false))
	}
}

func TestASlowStartIsNotRepeated(t *testing.T) {
	for cold, want := range map[time.Duration]bool{EndlessStart: false, EndlessStart + 1: true} {
		if got := endless([]Figures{{Cold: Taken{Whole: cold}}}); got != want {
			t.Errorf("%v: %v", cold, got)
		}
	}
	if endless(nil) {
		t.Error("nobody has started yet")
	}
}

func TestPlansAreValid(t *testing.T) {
	for _, s := range slices.Concat(FullPlan(), QuickPlan(), IPVSPlan(), SinglePlan(world.World{Services: 1, Endpoints: 1})) {
		if err := s.World.Validate(); err != nil || s.Rounds < 1 || s.Changes < 1 || s.Connections < blocks {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if _, err := Run(t.Context(), Config{Plan: []Stage{{Rounds: 1}}, Progress: io.Discard}); err == nil {
		t.Error("a plan without Services runs")
	}
}

func TestKilobytes(t *testing.T) {
	text := "Rss:                 684 kB\nPss:                   1 kB\n"
	if n, err := kilobytes(text, "Rss"); n != 684<<10 || err != nil {
		t.Error(n, err)
	}
	for _, field := range []string{"VmHWM", "Rs"} {
		if _, err := kilobytes(text, field); err == nil {
			t.Errorf("field %s was found", field)
		}
	}
}
