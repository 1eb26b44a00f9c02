package cluster

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/cluster/footprint"
)

// TestRemoveAfterACrash kills the command that starts a cluster at several points, the
// last with everything up, and wants nothing left after a removal by another process.
func TestRemoveAfterACrash(t *testing.T) {
	ctx := t.Context()
	command := filepath.Join(t.TempDir(), "cluster")
	build := exec.CommandContext(ctx, "go", "build", "-o", command, "github.com/fairlead/fairlead/test/cmd/cluster")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build command: %v: %s", err, output)
	}
	for _, line := range []string{"make keys", "start the nodes", "start the controller manager", "all nodes are ready"} {
		t.Run("killed at "+line, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "cluster")
			t.Cleanup(func() {
				if err := Remove(context.Background(), dir); err != nil {
					t.Error(err)
				}
			})
			killAt(ctx, t, line, exec.Command(command, "up", "--dir", dir, "--nodes", "1", "--ipvs-nodes", "1", "--index", "-1"))
			ledger, err := footprint.Open(layout{dir}.state())
			if err != nil {
				t.Fatal(err)
			}
			held := ledger.Held()
			if len(held.Namespaces) == 0 {
				t.Error("nothing was recorded")
			}
			for range 2 {
				if err := Remove(ctx, dir); err != nil {
					t.Fatal(err)
				}
			}
			wantNothing(t, dir, held)
		})
	}
}

// killAt runs the command and ends it, as kill -9 does, when its output holds the text.
func killAt(ctx context.Context, t *testing.T, text string, cmd *exec.Cmd) {
	t.Helper()
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	found := false
	for lines := bufio.NewScanner(output); !found && lines.Scan(); {
		found = strings.Contains(lines.Text(), text)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // reports the signal
	if !found {
		t.Fatalf("the command ended before it said %q", text)
	}
}

// TestRemoveWithoutAStateFile deletes a running cluster's folder first, as a cleaner of
// temporary files would: the claim on its index is enough to find it.
func TestRemoveWithoutAStateFile(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "cluster")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := build(ctx, Config{Dir: dir, Nodes: 1, Index: Auto}.withDefaults())
	t.Cleanup(func() {
		if err := Remove(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.prepare(ctx); err != nil {
		t.Fatal(err)
	}
	held := c.ledger.Held()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if claimed, err := Claimed(); err != nil || !slices.Contains(claimed, dir) {
		t.Errorf("claimed folders are %v, %v: want %s among them", claimed, err, dir)
	}
	if err := Remove(ctx, dir); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, dir, held)
}

func TestStartRefusesWhatItCannotDo(t *testing.T) {
	_, err := Start(t.Context(), Config{Dir: "here", Nodes: MaxNodes + 1, Index: -2})
	for _, field := range []string{"Dir", "Nodes", "Index"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error = %v, want %s in it", err, field)
		}
	}
}

func TestAClaimNamesItsOwner(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	index, err := claim(Config{Dir: dir, Index: Auto})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Remove(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	_, err = claim(Config{Dir: other, Index: index})
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("second claim: %v, want an error that names %s", err, dir)
	}
}
