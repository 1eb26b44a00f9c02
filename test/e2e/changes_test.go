package e2e

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/test/traffic"
	"github.com/fairlead/fairlead/test/web"
	"github.com/fairlead/fairlead/test/workload"
)

// TestE2ERollingUpdate rolls the Deployment under load from everywhere, through every kind of address; no request fails.
func TestE2ERollingUpdate(t *testing.T) {
	ctx, nodes := t.Context(), bed.Cluster.Nodes
	balancer := externals(70)
	route(t, nodes[1], balancer...)
	svc := mount(t, "rolling", func(s *core.ServiceSpec) {
		s.Type, s.Selector = core.ServiceTypeLoadBalancer, map[string]string{"app": web.Name}
	})
	svc.balance(t, vips(balancer...)...)
	pods, err := web.ReadyPods(ctx, bed.Cluster.Client)
	if err != nil {
		t.Fatal(err)
	}
	before := answers(names(pods)...)
	var clients []traffic.Client
	for _, family := range families() {
		for _, n := range nodes {
			onNode(n).expect(t, workload.TCP, svc.clusterIP(family), before)
			clients = append(clients, fromNode(t, n, workload.LoadConfig{Protocol: workload.TCP, Target: svc.clusterIP(family).String()}))
		}
		for _, target := range publicTargets(svc, nodes[1], family, workload.TCP) {
			outside(nodes[1]).expect(t, workload.TCP, target, before)
			clients = append(clients, fromHost(t, "outside", target))
		}
		pod := steady(workload.LoadConfig{Client: []string{"roll-4", "roll-6"}[family], Protocol: workload.TCP, Target: svc.clusterIP(family).String()})
		client, err := traffic.FromPod(ctx, bed.Cluster, nodes[0].Name, pod)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
	}
	if err := web.Roll(ctx, bed.Cluster.Client); err != nil {
		t.Fatal(err)
	}
	if pods, err = web.ReadyPods(ctx, bed.Cluster.Client); err != nil {
		t.Fatal(err)
	}
	now := names(pods)
	if slices.ContainsFunc(now, func(name string) bool { return slices.Contains(before.pods, name) }) {
		t.Errorf("nothing was rolled: before %v, now %v", before.pods, now)
	}
	stopAll(t, clients, func(s workload.Sample) bool { return slices.Contains(append(now, before.pods...), s.Pod) })
	for _, family := range families() {
		outside(nodes[1]).expect(t, workload.TCP, at(balancer[family]), answers(now...))
	}
}

func names(pods []core.Pod) []string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return all
}

// TestE2EUDPFollowsEndpoints keeps UDP clients on one port each while their Service's Pod is exchanged for another, first
// with the old one alive, which would go on answering, then by a true replacement with nothing in between.
func TestE2EUDPFollowsEndpoints(t *testing.T) {
	third := bed.Cluster.Nodes[2]
	balancer := externals(80)
	route(t, third, balancer...)
	svc := mount(t, "datagrams", func(s *core.ServiceSpec) {
		onFirstNode(s)
		s.Type = core.ServiceTypeLoadBalancer
	})
	svc.balance(t, vips(balancer...)...)
	udp := startUDPClients(t, svc, balancer)
	udp.follow(t, bed.one.Name)
	svc.change(t, func(s *core.ServiceSpec) { s.Selector = map[string]string{role: "two"} })
	udp.follow(t, bed.two.Name)

	understudy := web.PodConfig{Name: "understudy-1", Node: bed.Cluster.Nodes[0].Name, Labels: map[string]string{role: "three"}}
	startPod(t, understudy)
	svc.change(t, func(s *core.ServiceSpec) { s.Selector = understudy.Labels })
	udp.follow(t, understudy.Name)
	if err := web.EndPod(t.Context(), bed.Cluster.Client, understudy.Name); err != nil {
		t.Fatal(err)
	}
	understudy.Name, understudy.Node = "understudy-2", bed.Cluster.Nodes[1].Name
	startPod(t, understudy)
	udp.follow(t, understudy.Name)
	udp.stop(t)
}

// udpClients keep a port each, from when they start to when they stop.
type udpClients struct {
	places  []client // beside each client, to learn when the kernel has changed
	targets []netip.AddrPort
	kept    []traffic.Client
	phases  []phase
}

// phase is a time in which all answers had to come from one Pod.
type phase struct {
	pod      string
	from, to time.Time
}

func startUDPClients(t *testing.T, svc mounted, balancer []netip.Addr) *udpClients {
	t.Helper()
	third, udp := bed.Cluster.Nodes[2], &udpClients{}
	for _, family := range families() {
		nodePort := svc.nodePort(third, family, workload.UDP)
		for _, c := range []struct {
			place  client
			target netip.AddrPort
		}{
			{onNode(third), svc.clusterIP(family)},
			{inPod(bed.apart), svc.clusterIP(family)},
			{outside(third), nodePort},
			{outside(third), at(balancer[family])},
		} {
			c.place.expect(t, workload.UDP, c.target, want{pods: answers(bed.one.Name).pods, kept: c.place.name != "outside"})
			cfg := steady(workload.LoadConfig{Client: c.place.name, Protocol: workload.UDP, Target: c.target.String(), Keep: true})
			cfg.Timeout = 500 * time.Millisecond
			kept, err := startKept(t.Context(), c.place, cfg, family)
			if err != nil {
				t.Fatal(err)
			}
			udp.places, udp.targets, udp.kept = append(udp.places, c.place), append(udp.targets, c.target), append(udp.kept, kept)
		}
	}
	return udp
}

func startKept(ctx context.Context, place client, cfg workload.LoadConfig, family int) (traffic.Client, error) {
	switch place.name {
	case "outside":
		return traffic.FromHost(ctx, cfg)
	case place.node.Name:
		return traffic.FromNode(ctx, place.node, bed.Cluster.Workload(), cfg)
	}
	cfg.Client = []string{"datagrams-4", "datagrams-6"}[family]
	return traffic.FromPod(ctx, bed.Cluster, place.node.Name, cfg)
}

// follow waits until new clients reach the Pod; from a second later on the kept ones must too, for a second.
func (u *udpClients) follow(t *testing.T, pod string) {
	t.Helper()
	for i, c := range u.places {
		w := answers(pod)
		w.kept = c.name != "outside"
		c.expect(t, workload.UDP, u.targets[i], w)
	}
	after(t.Context(), t, time.Second)
	from := time.Now()
	after(t.Context(), t, time.Second)
	u.phases = append(u.phases, phase{pod, from, time.Now()})
}

// stop holds that every client kept its port and met the right Pod in each phase.
func (u *udpClients) stop(t *testing.T) {
	t.Helper()
	for i, kept := range u.kept {
		samples, err := kept.Stop(t.Context())
		if err != nil {
			t.Error(err)
			continue
		}
		for _, p := range u.phases {
			met := map[string]int{}
			for _, s := range samples {
				if s.Time.After(p.from) && s.Time.Before(p.to) {
					met[s.Pod+s.Error]++
				}
			}
			if len(met) != 1 || met[p.pod] == 0 {
				t.Errorf("the kept client %s of %s met %v, want %s alone", u.places[i].name, u.targets[i], met, p.pod)
			}
		}
	}
}

// repairTime is how long somebody else's change may last.
const repairTime = 5 * time.Second

// TestE2EForeignFlush empties a node's tables as a firewall's reload does: they are repaired, and that is counted.
func TestE2EForeignFlush(t *testing.T) {
	flush := map[string][][]string{
		"iptables": {{"iptables", "-t", "nat", "-F"}, {"ip6tables", "-t", "nat", "-F"}},
		"nftables": {{"nft", "flush", "ruleset"}},
		"ipvs":     {{"ipvsadm", "--clear"}},
	}[bed.Mode(t.Context())]
	if flush == nil {
		t.Fatalf("mode %q: name what to flush", bed.Mode(t.Context()))
	}
	ctx, n := t.Context(), bed.Cluster.Nodes[1]
	svc := mount(t, "flushed", func(*core.ServiceSpec) {})
	both := answers(bed.one.Name, bed.two.Name).keeping()
	for _, family := range families() {
		onNode(n).expect(t, workload.TCP, svc.clusterIP(family), both)
	}
	repairs := func() float64 {
		value, err := bed.AgentMetric(ctx, n, "fairlead_audit_repairs_total")
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	counted := repairs()
	begin := time.Now()
	for _, argv := range flush {
		if _, err := n.Run(ctx, argv...); err != nil {
			t.Fatal(err)
		}
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return repairs() > counted, nil
	})
	if err != nil {
		t.Fatalf("no repair was counted: %v", err)
	}
	for _, family := range families() {
		onNode(n).expect(t, workload.TCP, svc.clusterIP(family), both)
	}
	if took := time.Since(begin); took > repairTime {
		t.Errorf("repaired after %s, want within %s", took, repairTime)
	} else {
		t.Logf("repaired within %s", took)
	}
}
