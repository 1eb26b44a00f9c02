package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/test/demo"
	"github.com/fairlead/fairlead/test/traffic"
	"github.com/fairlead/fairlead/test/web"
	"github.com/fairlead/fairlead/test/workload"
)

// clients are new connections over HTTP and established ones over TCP from every node,
// and new ones from a Pod.
type clients struct{ fresh, kept []traffic.Client }

func startClients(ctx context.Context, t *testing.T) *clients {
	t.Helper()
	cs := &clients{}
	fresh := workload.LoadConfig{
		Protocol: workload.HTTP, Target: bed.vip + ":" + strconv.Itoa(web.Port), Rate: 50, Timeout: 5 * time.Second,
		Client: "client",
	}
	pod, err := traffic.FromPod(ctx, bed.Cluster, bed.Cluster.Nodes[0].Name, fresh)
	if err != nil {
		t.Fatal(err)
	}
	cs.fresh = append(cs.fresh, pod)
	for _, n := range bed.Cluster.Nodes {
		fresh.Client = n.Name
		client, err := traffic.FromNode(ctx, n, bed.Cluster.Workload(), fresh)
		if err != nil {
			t.Fatal(err)
		}
		cs.fresh = append(cs.fresh, client)
		for i := range 5 {
			kept := workload.LoadConfig{
				Protocol: workload.TCP, Target: bed.vip + ":" + strconv.Itoa(web.EchoPort), Rate: 5, Timeout: 5 * time.Second,
				Client: fmt.Sprintf("%s-kept-%d", n.Name, i), Keep: true,
			}
			client, err := traffic.FromNode(ctx, n, bed.Cluster.Workload(), kept)
			if err != nil {
				t.Fatal(err)
			}
			cs.kept = append(cs.kept, client)
		}
	}
	return cs
}

// stop ends all clients; none may have seen a failure, and all must have been at work.
func (cs *clients) stop(ctx context.Context, t *testing.T) {
	t.Helper()
	sent := 0
	for _, kind := range [][]traffic.Client{cs.fresh, cs.kept} {
		for _, client := range kind {
			samples, err := client.Stop(ctx)
			if err != nil {
				t.Fatal(err)
			}
			sum := traffic.Summarise(samples)
			sent += sum.Sent
			if sum.Sent == 0 {
				t.Error("a client sent nothing")
			}
			if sum.Failed > 0 {
				t.Errorf("%d of %d requests failed: %v", sum.Failed, sum.Sent, sum.Errors)
			}
		}
	}
	t.Logf("%d requests", sent)
}

// after waits until a time has passed: outages last as long as the issue says.
func after(ctx context.Context, t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	case <-time.After(d):
	}
}

// TestE2EOutages takes away one part after another; no request and no established
// connection is lost, and changes made meanwhile arrive afterwards.
func TestE2EOutages(t *testing.T) {
	for _, outage := range []struct {
		name string
		run  func(ctx context.Context, t *testing.T)
	}{
		{"controller killed", killController},
		{"agent killed", killAgent},
		{"API server away for 30 s", stopAPIServer},
		{"node cut from the controller for 60 s", cutNode},
	} {
		t.Run(outage.name, func(t *testing.T) {
			ctx := t.Context()
			cs := startClients(ctx, t)
			after(ctx, t, 2*time.Second)
			outage.run(ctx, t)
			flipsArrive(ctx, t)
			cs.stop(ctx, t)
		})
	}
}

// flipsArrive holds that changes reach every kernel again.
func flipsArrive(ctx context.Context, t *testing.T) {
	t.Helper()
	if _, err := demo.Flips(ctx, bed.System, 1); err != nil {
		t.Fatal(err)
	}
}

func killController(ctx context.Context, t *testing.T) {
	if err := bed.Controller.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	after(ctx, t, 2*time.Second)
	if err := bed.StartController(); err != nil {
		t.Fatal(err)
	}
	waitConnected(ctx, t)
}

func killAgent(ctx context.Context, t *testing.T) {
	n := bed.Cluster.Nodes[1]
	if err := bed.Agents[n.Name].Kill(ctx); err != nil {
		t.Fatal(err)
	}
	after(ctx, t, 2*time.Second)
	if err := bed.StartAgent(n); err != nil {
		t.Fatal(err)
	}
	if err := bed.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

func stopAPIServer(ctx context.Context, t *testing.T) {
	if err := bed.Cluster.KillAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	after(ctx, t, 30*time.Second)
	bed.apiServerSince = time.Now()
	if err := bed.Cluster.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if err := bed.Cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// cutNode makes a change while the node hears nothing, which then arrives.
func cutNode(ctx context.Context, t *testing.T) {
	n := bed.Cluster.Nodes[2]
	if err := n.Cut(ctx, bed.Cluster.ControllerIPs()...); err != nil {
		t.Fatal(err)
	}
	pods, err := web.ReadyPods(ctx, bed.Cluster.Client)
	if err != nil {
		t.Fatal(err)
	}
	if err := demo.Tell(ctx, bed.Cluster.Nodes[0], pods[0], false); err != nil {
		t.Fatal(err)
	}
	after(ctx, t, 60*time.Second)
	if err := n.Heal(ctx); err != nil {
		t.Fatal(err)
	}
	ip := pods[0].Status.PodIP
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		rules, err := n.Run(ctx, "sh", "-c", "iptables-save -t nat; nft list ruleset ip 2>/dev/null || true")
		return err == nil && !strings.Contains(string(rules), "to-destination "+ip+":") && !strings.Contains(string(rules), " : "+ip+" . "), err
	})
	if err != nil {
		t.Errorf("the change made while the node was cut off did not arrive: %v", err)
	}
	if err := demo.Tell(ctx, bed.Cluster.Nodes[0], pods[0], true); err != nil {
		t.Fatal(err)
	}
	waitConnected(ctx, t)
}

// waitConnected waits until the controller counts all agents as current.
func waitConnected(ctx context.Context, t *testing.T) {
	t.Helper()
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return bed.Connected(ctx) == len(bed.Cluster.Nodes), nil
	})
	if err != nil {
		t.Fatalf("%d of %d agents are connected: %v", bed.Connected(ctx), len(bed.Cluster.Nodes), err)
	}
}
