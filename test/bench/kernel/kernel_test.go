package kernel

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/bench/contest"
	"github.com/fairlead/fairlead/test/bench/world"
	"github.com/fairlead/fairlead/test/cluster/binaries"
)

// TestMain is what the command bench is in the kernel.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != Flag {
		os.Exit(m.Run())
	}
	if err := Inside(context.Background(), os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestRun measures a very small cluster with the real programs, in a real kernel that has IPVS.
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	var progress bytes.Buffer
	results, err := Run(ctx, contest.Config{
		Modes: []contest.Mode{contest.IPVSMode()}, Dir: t.TempDir(), Progress: &progress,
		Plan:     []contest.Stage{{World: world.World{Services: 5, Endpoints: 2}, Rounds: 1, Changes: 1, Connections: 20}},
		Programs: map[string]string{"kube-proxy": programs["kube-proxy"], "fairlead-agent": agent},
	})
	if err != nil {
		t.Fatalf("%v; so far:\n%s", err, progress.String())
	}
	if len(results) != 1 || strings.Count(progress.String(), "\n") != 2 {
		t.Fatalf("%d results, progress:\n%s", len(results), progress.String())
	}
	for _, side := range []contest.Side{contest.Ours, contest.Peer} {
		f := results[0].Of[side][0]
		if len(f.Changes) != 2 || len(f.Services) != 20 || len(f.Directs) != 20 || f.Cold.Whole <= 0 || f.Cold.Own <= 0 || f.Memory.End < 1<<20 {
			t.Errorf("%v: %+v", side, f)
		}
	}
}

// TestWhatFailsInsideIsSaidOutside: with the reason, not only with a console, and with what had been measured before.
func TestWhatFailsInsideIsSaidOutside(t *testing.T) {
	results, err := Run(t.Context(), contest.Config{
		Modes: []contest.Mode{contest.IPVSMode()}, Dir: t.TempDir(), Progress: &bytes.Buffer{},
		Plan: []contest.Stage{{World: world.World{Services: 5, Endpoints: 2}, Rounds: 0}, {Rounds: 1}},
	})
	if err == nil || !strings.Contains(err.Error(), "services: 0") {
		t.Errorf("a plan without Services: %v", err)
	}
	if len(results) != 1 || results[0].Stage.World.Services != 5 {
		t.Errorf("the stage before is not handed over, but %+v", results)
	}
}

func TestConsole(t *testing.T) {
	var progress bytes.Buffer
	rest := read(strings.NewReader("begin\r\nbench: one\r\nnoise\n"+strings.Repeat("x", 5000)+"\nbench: two\n"), &progress)
	if progress.String() != "one\ntwo\n" || len(rest) > 4000 || strings.Contains(rest, "noise") || !strings.HasSuffix(rest, "x\n") {
		t.Errorf("progress %q, %d characters of the rest", progress.String(), len(rest))
	}
}
