package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKernelNode uses a node that is a kernel of its own as tests use any other.
func TestKernelNode(t *testing.T) {
	ctx := t.Context()
	c, err := Start(ctx, Config{Dir: filepath.Join(t.TempDir(), "cluster"), Nodes: 1, IPVSNodes: 1, Index: Auto, Stdout: testLog{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Remove(context.Background(), c.Dir()); err != nil {
			t.Error(err)
		}
	})
	node := c.Nodes[1]
	pods := startPods(ctx, t, c)
	t.Run("it reaches Pods of other nodes in both families", func(t *testing.T) {
		for _, ip := range pods[0].Status.PodIPs {
			askPod(ctx, t, node, askedPod{c.Workload(), pods[0].Name, ip.IP})
		}
	})
	t.Run("it has its own kernel, name and folders", func(t *testing.T) { ownKernel(ctx, t, node) })
	t.Run("programs are started, killed and terminated", func(t *testing.T) { programs(ctx, t, node) })
	t.Run("its clock is the machine's", func(t *testing.T) {
		before := time.Now()
		output, err := node.Run(ctx, "date", "+%s%N")
		if err != nil {
			t.Fatal(err)
		}
		now, err := strconv.ParseInt(strings.TrimSpace(string(output)), 10, 64)
		const off = 20 * time.Millisecond
		if at := time.Unix(0, now); err != nil || at.Before(before.Add(-off)) || at.After(time.Now().Add(off)) {
			t.Errorf("it is %v there, asked at %v: %v", at, before, err)
		}
	})
	t.Run("a cut node does not hear the controller's address until it is healed", func(t *testing.T) { cutAndHeal(ctx, t, c) })
	t.Run("Open finds it", func(t *testing.T) {
		again, err := Open(c.Dir())
		if err != nil {
			t.Fatal(err)
		}
		if !again.Healthy(ctx) || len(again.Nodes) != 2 || again.Nodes[0].IPVS || !again.Nodes[1].IPVS {
			t.Error("the opened cluster is another one")
		}
		if _, err := again.Nodes[1].Run(ctx, "true"); err != nil {
			t.Error(err)
		}
		if err := again.Nodes[1].StartKubelet(); err == nil {
			t.Error("a kubelet was started")
		}
	})
	t.Run("removal leaves nothing", func(t *testing.T) {
		held := c.ledger.Held()
		if err := c.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		wantNothing(t, c.Dir(), held)
	})
}

// askedPod is a Pod by name and address, and the program that asks it.
type askedPod struct{ workload, name, ip string }

func askPod(ctx context.Context, t *testing.T, node *Node, pod askedPod) {
	t.Helper()
	target := "[" + pod.ip + "]:8080"
	for _, sample := range ask(ctx, t, node, []string{pod.workload, "load", "--target", target, "--rate", "5", "--duration", "500ms"}) {
		if sample.Error != "" || sample.Pod != pod.name {
			t.Errorf("request to %s at %s: %+v", pod.name, target, sample)
		}
	}
}

func ownKernel(ctx context.Context, t *testing.T, node *Node) {
	t.Helper()
	output, err := node.Run(ctx, "sh", "-c", "hostname; grep -m1 vendor /proc/cpuinfo; ls /proc/net/ip_vs; echo here | tee /run/mark /var/lib/mark /var/log/mark; touch /etc/mark || echo sealed")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{node.Name, "User Mode Linux", "/proc/net/ip_vs", "sealed"} {
		if !strings.Contains(string(output), want) {
			t.Errorf("output %q lacks %s", output, want)
		}
	}
	for _, file := range []string{"/run/mark", "/var/lib/mark", "/var/log/mark", "/etc/mark"} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s was written on the host", file)
		}
	}
	object, err := node.cluster.Client.CoreV1().Nodes().Get(ctx, node.Name, meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := object.Spec.Taints; len(got) != 1 || got[0].Key != TaintNoContainers || got[0].Effect != core.TaintEffectNoSchedule {
		t.Errorf("taints %v", got)
	}
	if got := len(object.Status.Addresses); got != 3 {
		t.Errorf("%d addresses: %v", got, object.Status.Addresses)
	}
}

// programs holds that a Program there ends when Kill and Terminate have returned, not only what stands for it here.
func programs(ctx context.Context, t *testing.T, node *Node) {
	t.Helper()
	for name, end := range map[string]func(*Program) error{
		"kill":      func(p *Program) error { return p.Kill(ctx) },
		"terminate": func(p *Program) error { return p.Terminate(ctx) },
	} {
		p, err := node.Launch(name, "sh", "-c", "echo begin; exec sleep 8765")
		if err != nil {
			t.Fatal(err)
		}
		err = poll(ctx, name+" to begin", func(context.Context) (bool, error) {
			log, err := os.ReadFile(p.Log())
			return strings.Contains(string(log), "begin"), err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := end(p); err != nil {
			t.Error(err)
		}
		if output, err := node.Run(ctx, "pgrep", "-f", "sleep 8765"); err == nil {
			t.Errorf("%s: %s lives on", name, output)
		}
	}
}
