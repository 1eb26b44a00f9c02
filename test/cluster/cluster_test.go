package cluster

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/cluster/footprint"
	"github.com/fairlead/fairlead/test/workload"
)

// TestClusterUp brings a whole cluster up, uses it as other tests do, and wants nothing
// left of it.
func TestClusterUp(t *testing.T) {
	ctx := t.Context()
	c, err := Start(ctx, Config{Dir: filepath.Join(t.TempDir(), "cluster"), Index: Auto, Stdout: testLog{t}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Remove(context.Background(), c.Dir()); err != nil {
			t.Error(err)
		}
	})
	pods := startPods(ctx, t, c)

	t.Run("Pods reach Pods of other nodes in both families", func(t *testing.T) { reachPods(ctx, t, c, pods) })
	t.Run("a node has its own network, name and folders", func(t *testing.T) { ownWorld(ctx, t, c) })
	t.Run("a cut node does not hear the controller's address until it is healed", func(t *testing.T) { cutAndHeal(ctx, t, c) })
	t.Run("users have the rights they were given", func(t *testing.T) { users(ctx, t, c) })
	t.Run("the API server is killed and comes back", func(t *testing.T) { restart(ctx, t, c) })
	t.Run("no endpoint controller runs", func(t *testing.T) { noEndpoints(ctx, t, c) })
	t.Run("Open finds the cluster", func(t *testing.T) { reopen(ctx, t, c) })

	t.Run("removal leaves nothing", func(t *testing.T) {
		held := c.ledger.Held()
		// A program that a test forgot, recorded nowhere.
		stray := c.Nodes[0].Command(ctx, "sleep", "1000")
		if err := stray.Start(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.Stop(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := stray.Wait(); err == nil {
			t.Error("the stray program ended by itself")
		}
		wantNothing(t, c.Dir(), held)
	})
}

// startPods makes a Pod on each node that runs containers and returns them when they are ready.
func startPods(ctx context.Context, t *testing.T, c *Cluster) []core.Pod {
	t.Helper()
	for _, node := range c.containerNodes() {
		pod := &core.Pod{
			ObjectMeta: meta.ObjectMeta{Name: "on-" + node.Name, Labels: map[string]string{"app": "server"}},
			Spec: core.PodSpec{NodeName: node.Name, Containers: []core.Container{{
				Name: "server", Image: WorkloadImage, ImagePullPolicy: core.PullNever, Args: []string{"serve"},
				ReadinessProbe: &core.Probe{PeriodSeconds: 1, ProbeHandler: core.ProbeHandler{Exec: &core.ExecAction{Command: []string{"/workload", "help"}}}},
			}}},
		}
		if _, err := c.Client.CoreV1().Pods("default").Create(ctx, pod, meta.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var ready []core.Pod
	err := poll(ctx, "Pods to be ready", func(ctx context.Context) (bool, error) {
		list, err := c.Client.CoreV1().Pods("default").List(ctx, meta.ListOptions{LabelSelector: "app=server"})
		if err != nil {
			return false, err
		}
		ready = nil
		for _, pod := range list.Items {
			for _, condition := range pod.Status.Conditions {
				if condition.Type == core.PodReady && condition.Status == core.ConditionTrue && len(pod.Status.PodIPs) == 2 {
					ready = append(ready, pod)
				}
			}
		}
		return len(ready) == c.cfg.Nodes, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ready
}

// reachPods sends from a Pod and from a node to every Pod; a Pod's address is not changed.
func reachPods(ctx context.Context, t *testing.T, c *Cluster, pods []core.Pod) {
	kubectl := []string{c.Kubectl(), "--kubeconfig", c.AdminKubeconfig(), "exec", pods[0].Name, "--", "/workload"}
	for _, target := range pods {
		for _, ip := range target.Status.PodIPs {
			addr := netip.AddrPortFrom(netip.MustParseAddr(ip.IP), 8080).String()
			args := []string{"load", "--target", addr, "--rate", "5", "--duration", "500ms"}
			fromNode := ask(ctx, t, c.Nodes[0], append([]string{c.Workload()}, args...))
			// kubectl runs on the node as well as on the host: all it needs is the API server.
			fromPod := ask(ctx, t, c.Nodes[0], append(kubectl, args...))
			for _, sample := range append(fromNode, fromPod...) {
				if sample.Error != "" || sample.Pod != target.Name {
					t.Errorf("request to %s at %s: %+v", target.Name, addr, sample)
				}
			}
			for _, sample := range fromPod {
				source := netip.MustParseAddrPort(sample.Source).Addr()
				if !c.Nodes[0].PodCIDRs[0].Contains(source) && !c.Nodes[0].PodCIDRs[1].Contains(source) {
					t.Errorf("%s saw the Pod as %s", target.Name, source)
				}
			}
		}
	}
}

func ask(ctx context.Context, t *testing.T, node *Node, argv []string) []workload.Sample {
	t.Helper()
	output, err := node.Run(ctx, argv...)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := workload.ReadSamples(strings.NewReader(string(output)))
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) == 0 {
		t.Fatalf("%v sent nothing", argv)
	}
	return samples
}

func ownWorld(ctx context.Context, t *testing.T, c *Cluster) {
	for _, node := range c.Nodes {
		script := `hostname; ip -brief -4 address show eth0; echo here >/run/mark; cat /var/lib/mark 2>/dev/null; echo here >/var/lib/mark; ls ` + c.AdminKubeconfig()
		output, err := node.Run(ctx, "sh", "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{node.Name, node.IPs[0].String(), c.AdminKubeconfig()} {
			if !strings.Contains(string(output), want) {
				t.Errorf("%s: output %q lacks %s", node.Name, output, want)
			}
		}
		if strings.Contains(string(output), "here") {
			t.Errorf("%s sees another node's /var/lib", node.Name)
		}
	}
	for _, file := range []string{"/run/mark", "/var/lib/mark"} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s was written on the host", file)
		}
	}
}

// cutAndHeal pings by TCP: a refusal comes back from the host, a cut says nothing.
func cutAndHeal(ctx context.Context, t *testing.T, c *Cluster) {
	node := c.Nodes[1]
	reach := func(addr netip.Addr) string {
		target := netip.AddrPortFrom(addr, 1).String()
		samples := ask(ctx, t, node, []string{c.Workload(), "load", "--protocol", "tcp", "--target", target, "--rate", "10", "--timeout", "300ms", "--duration", "150ms"})
		return samples[0].Error
	}
	for round := range 2 {
		if err := node.Cut(ctx, c.ControllerIPs()...); err != nil {
			t.Fatal(err)
		}
		for family := range 2 {
			if got := reach(c.ControllerIPs()[family]); !strings.Contains(got, "timeout") {
				t.Errorf("round %d: a cut node hears %q from %s", round, got, c.ControllerIPs()[family])
			}
			if got := reach(c.APIServerIPs()[family]); !strings.Contains(got, "refused") {
				t.Errorf("round %d: a cut node hears %q from %s, which was not cut", round, got, c.APIServerIPs()[family])
			}
		}
		for range 2 {
			if err := node.Heal(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for _, addr := range c.ControllerIPs() {
			if got := reach(addr); !strings.Contains(got, "refused") {
				t.Errorf("round %d: a healed node hears %q from %s", round, got, addr)
			}
		}
	}
}

func users(ctx context.Context, t *testing.T, c *Cluster) {
	for _, user := range []struct {
		name   string
		groups []string
		allow  string
	}{{"jane", nil, "no"}, {"system:jane", []string{"system:masters"}, "yes"}} {
		kubeconfig, err := c.Kubeconfig(user.name, user.groups...)
		if err != nil {
			t.Fatal(err)
		}
		// kubectl exits with 1 to say no.
		output, _ := c.Nodes[0].Run(ctx, c.Kubectl(), "--kubeconfig", kubeconfig, "auth", "can-i", "list", "pods")
		if got := strings.TrimSpace(string(output)); got != user.allow {
			t.Errorf("%s may list Pods: %s, want %s", user.name, got, user.allow)
		}
	}
	log, err := os.ReadFile(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"username":"jane"`, `"verb":"watch"`, `"stage":"ResponseStarted"`} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the audit log lacks %s", want)
		}
	}
}

func restart(ctx context.Context, t *testing.T, c *Cluster) {
	if err := c.KillAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if c.Healthy(ctx) {
		t.Error("the API server answers after it was killed")
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Error(err)
	}
}

// noEndpoints makes a Service for the Pods: with upstream's controllers its slice would
// be there within a second or so.
func noEndpoints(ctx context.Context, t *testing.T, c *Cluster) {
	service := &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: "server"},
		Spec:       core.ServiceSpec{Selector: map[string]string{"app": "server"}, Ports: []core.ServicePort{{Port: 80}}},
	}
	if _, err := c.Client.CoreV1().Services("default").Create(ctx, service, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := poll(waiting, "a slice", func(ctx context.Context) (bool, error) {
		slices, err := c.Client.DiscoveryV1().EndpointSlices("default").List(ctx, meta.ListOptions{LabelSelector: "kubernetes.io/service-name=server"})
		return err == nil && len(slices.Items) > 0, err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an EndpointSlice appeared, or the list failed: %v", err)
	}
}

func reopen(ctx context.Context, t *testing.T, c *Cluster) {
	again, err := Open(c.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if !again.Healthy(ctx) || len(again.Nodes) != len(c.Nodes) {
		t.Error("the opened cluster is another one")
	}
	if _, err := again.Nodes[0].Run(ctx, "true"); err != nil {
		t.Error(err)
	}
	if _, err := again.Kubeconfig("joe"); err != nil {
		t.Error(err)
	}
}

func wantNothing(t *testing.T, dir string, held footprint.Footprint) {
	t.Helper()
	living, err := held.Living()
	if err != nil || len(living) > 0 {
		t.Errorf("processes are left: %v, %v", living, err)
	}
	paths := append(held.Cgroups, held.Paths...)
	for _, name := range held.Namespaces {
		paths = append(paths, footprint.NamespacePath(name))
	}
	for _, link := range held.Links {
		paths = append(paths, "/sys/class/net/"+link)
	}
	for _, path := range append(paths, dir) {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), dir) {
		t.Error("a mount is left")
	}
	if _, err := Open(dir); err == nil {
		t.Error("the removed cluster can be opened")
	}
}

// testLog prints a cluster's steps as the test's own.
type testLog struct{ t *testing.T }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}
