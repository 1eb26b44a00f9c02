package e2e

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/cluster/binaries"
	"github.com/fairlead/fairlead/test/commits"
	"github.com/fairlead/fairlead/test/traffic"
	"github.com/fairlead/fairlead/test/web"
	"github.com/fairlead/fairlead/test/workload"
)

// TestE2EBothAway takes the API server away and 30 s later the controller as well, for another 30.
func TestE2EBothAway(t *testing.T) { bothAway(t, 30*time.Second) }

// bothAway takes the API server away, and after half of the time the controller as well: the nodes go on by the rules they
// have, and nobody touches them.
func bothAway(t *testing.T, half time.Duration) {
	t.Helper()
	ctx := t.Context()
	cs := startClients(ctx, t)
	kernels := map[string]*commits.Log{}
	for _, n := range bed.Cluster.Nodes {
		log, err := commits.Watch(ctx, n.NetworkNamespace())
		if err != nil {
			t.Fatal(err)
		}
		kernels[n.Name] = log
	}
	begin := time.Now()
	if err := bed.Cluster.KillAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	after(ctx, t, half)
	if err := bed.Controller.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	after(ctx, t, half)
	for name, kernel := range kernels {
		if commit, ok := kernel.Last(begin, time.Now()); ok {
			t.Errorf("the kernel of %s was written to by %s, %v into the outage", name, commit.By, commit.At.Sub(begin))
		}
	}
	if err := bed.StartController(); err != nil {
		t.Fatal(err)
	}
	bed.apiServerSince = time.Now()
	if err := bed.Cluster.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if err := bed.Cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	waitConnected(ctx, t)
	flipsArrive(ctx, t)
	cs.stop(ctx, t)
}

// TestE2EReboot starts an agent after what a reboot does to it: a kernel without rules, another boot id, and the disk of
// before. The controller is down. Services answer within ten seconds.
func TestE2EReboot(t *testing.T) {
	ctx, n := t.Context(), bed.Cluster.Nodes[1]
	if err := bed.Controller.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := bed.Agents[n.Name].Kill(ctx); err != nil {
		t.Fatal(err)
	}
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	const bootID = "/proc/sys/kernel/random/boot_id"
	for _, argv := range [][]string{
		{filepath.Join(root, "bin", "fairlead-agent"), "cleanup", "--state-dir="}, // the disk stays
		{"sh", "-c", "echo 0d1e5c2a-0000-4000-8000-000000000000 >/run/boot_id"},
		{"mount", "--bind", "/run/boot_id", bootID},
	} {
		if _, err := n.Run(ctx, argv...); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := n.Run(context.WithoutCancel(ctx), "umount", bootID); err != nil {
			t.Error(err)
		}
	})
	if err := answersOnce(ctx, n); err == nil {
		t.Fatal("the Service answers without rules: nothing is tested")
	}
	started := time.Now()
	if err := bed.StartAgent(n); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		return answersOnce(ctx, n) == nil, nil
	})
	if took := time.Since(started); err != nil || took > 10*time.Second {
		t.Errorf("the Service answers %v after the agent's start: %v", took, err)
	} else {
		t.Logf("the Service answers %v after the agent's start", took)
	}
	// Connection tracking would pin what was tried without rules, untranslated, for two minutes: a client that comes to the
	// same port again would wait in vain. The agent has it forget.
	var pinned []byte
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (done bool, err error) {
		pinned, err = n.Run(ctx, "conntrack", "-L", "-p", "tcp", "-d", bed.vip, "--state", "SYN_SENT")
		return !bytes.Contains(pinned, []byte("SYN_SENT")), err
	})
	if err != nil {
		t.Errorf("attempts from before the rules: %v\n%s", err, pinned)
	}
	if err := bed.StartController(); err != nil {
		t.Fatal(err)
	}
	waitConnected(ctx, t)
	flipsArrive(ctx, t)
}

// answersOnce asks the Service once from a node.
func answersOnce(ctx context.Context, n *cluster.Node) error {
	samples, err := traffic.AskFromNode(ctx, n, bed.Cluster.Workload(), workload.AskConfig{
		Client: n.Name, Protocol: workload.HTTP, Target: bed.vip + ":" + strconv.Itoa(web.Port), Timeout: 500 * time.Millisecond, Count: 1,
	})
	if err != nil {
		return err
	}
	if sum := traffic.Summarise(samples); sum.Sent != 1 || sum.Failed > 0 {
		return fmt.Errorf("%d requests, %d failed: %v", sum.Sent, sum.Failed, sum.Errors)
	}
	return nil
}
