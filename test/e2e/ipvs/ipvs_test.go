package ipvs

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/test/fairlead"
	"github.com/fairlead/fairlead/test/traffic"
	"github.com/fairlead/fairlead/test/web"
	"github.com/fairlead/fairlead/test/workload"
)

// TestE2EIPVSMode: where the kernel has IPVS it is used, and elsewhere the agent falls back, and says so where people look.
func TestE2EIPVSMode(t *testing.T) {
	for _, n := range bed.Cluster.Nodes {
		want := "iptables"
		if n.IPVS {
			want = mode
		}
		if got := bed.ModeOf(t.Context(), n); got != want {
			t.Errorf("%s: mode %q, want %q", n.Name, got, want)
		}
		metric := fmt.Sprintf("fairlead_proxy_mode{effective=%q,requested=%q}", want, mode)
		if got, err := bed.AgentMetric(t.Context(), n, metric); err != nil || got != 1 {
			t.Errorf("%s: %s is %v, %v", n.Name, metric, got, err)
		}
	}
	for _, n := range bed.plain {
		log, err := os.ReadFile(bed.Agents[n.Name].Log())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(log), `"requested":"ipvs","mode":"iptables"`) {
			t.Errorf("%s: the agent's log does not say that it fell back", n.Name)
		}
	}
	for family, addr := range []string{"%s:%d", "[%s]:%d"} {
		want := fmt.Sprintf(addr, bed.svc.Spec.ClusterIPs[family], port)
		eventually(t, func(ctx context.Context) error {
			out, err := bed.own.Run(ctx, "ipvsadm", "-Ln")
			if err == nil && !strings.Contains(string(out), want+" rr") {
				err = fmt.Errorf("no virtual server %s in:\n%s", want, out)
			}
			return err
		})
	}
}

// TestE2EIPVSReaches every address of a Service from the IPVS node, and over the IPVS node from outside: real Pods on other
// nodes answer, all of them.
func TestE2EIPVSReaches(t *testing.T) {
	route(t)
	for family := range balancers() {
		for _, protocol := range []string{workload.TCP, workload.UDP} {
			targets := map[string]netip.AddrPort{
				"cluster IP":             netip.AddrPortFrom(netip.MustParseAddr(bed.svc.Spec.ClusterIPs[family]), port),
				"own node port":          nodePort(bed.own.IPs[family], protocol),
				"node port of another":   nodePort(bed.plain[0].IPs[family], protocol),
				"load-balancer IP":       netip.AddrPortFrom(balancers()[family], port),
				"outside: node port":     nodePort(bed.own.IPs[family], protocol),
				"outside: load balancer": netip.AddrPortFrom(balancers()[family], port),
			}
			for name, target := range targets {
				t.Run(fmt.Sprintf("%s/%s/%d", name, protocol, family), func(t *testing.T) {
					eventually(t, func(ctx context.Context) error { return reach(ctx, name, protocol, target) })
				})
			}
		}
	}
}

// draws makes it improbable that one of two Pods is not drawn, whatever the scheduler.
const draws = 24

func reach(ctx context.Context, name, protocol string, target netip.AddrPort) error {
	cfg := workload.AskConfig{Client: name, Protocol: protocol, Target: target.String(), Timeout: 5 * time.Second, Count: draws}
	var samples []workload.Sample
	var err error
	if strings.HasPrefix(name, "outside") {
		samples, err = workload.Ask(ctx, cfg)
	} else {
		samples, err = traffic.AskFromNode(ctx, bed.own, bed.Cluster.Workload(), cfg)
	}
	if err != nil {
		return err
	}
	sum := traffic.Summarise(samples)
	if sum.Failed > 0 || len(sum.ByPod) != len(bed.pods) {
		return fmt.Errorf("%d of %d requests failed, answers by Pod %v, errors %v", sum.Failed, sum.Sent, sum.ByPod, sum.Errors)
	}
	return nil
}

// TestE2EIPVSFollowsReadiness: under traffic from the IPVS node, a Pod turns unready and ready again several times, and the
// agent is killed and started again in between. No request fails, and no new connection reaches a Pod that the kernel has
// dropped.
func TestE2EIPVSFollowsReadiness(t *testing.T) {
	route(t)
	clients := startClients(t)
	t.Cleanup(func() { tell(context.WithoutCancel(t.Context()), t, bed.pods[0], true) })
	type absence struct{ from, to time.Time }
	var absences []absence
	const clocks = 50 * time.Millisecond // the kernel's clock and the machine's are not the same
	for round := range 3 {
		gone := flip(t, false)
		if round == 1 {
			restartAgent(t)
		}
		back := time.Now()
		absences = append(absences, absence{gone.Add(clocks), back})
		flip(t, true)
	}
	for _, c := range clients {
		samples, err := c.Stop(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum := traffic.Summarise(samples)
		if sum.Failed > 0 || sum.Sent < 10 || len(sum.ByPod) != len(bed.pods) {
			t.Errorf("%d of %d requests failed, answers by Pod %v: %v", sum.Failed, sum.Sent, sum.ByPod, sum.Errors)
		}
		for _, a := range absences {
			if late := traffic.LastTo(samples, bed.pods[0].Name, a.from, a.to); !late.IsZero() {
				t.Errorf("%s reached the Pod %v after the kernel had dropped it", samples[0].Client, late.Sub(a.from))
			}
		}
	}
}

// startClients are on the IPVS node and outside of it, in both families and protocols.
func startClients(t *testing.T) (clients []traffic.Client) {
	t.Helper()
	for family := range balancers() {
		for _, protocol := range []string{workload.TCP, workload.UDP} {
			cfg := workload.LoadConfig{Protocol: protocol, Rate: 20, Timeout: 5 * time.Second}
			cfg.Client, cfg.Target = fmt.Sprintf("inside-%s-%d", protocol, family), netip.AddrPortFrom(netip.MustParseAddr(bed.svc.Spec.ClusterIPs[family]), port).String()
			inside, err := traffic.FromNode(context.WithoutCancel(t.Context()), bed.own, bed.Cluster.Workload(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Client, cfg.Target = fmt.Sprintf("outside-%s-%d", protocol, family), netip.AddrPortFrom(balancers()[family], port).String()
			outside, err := traffic.FromHost(context.WithoutCancel(t.Context()), cfg)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, inside, outside)
		}
	}
	return clients
}

// flip turns the first Pod, and returns when the IPVS kernel had it.
func flip(t *testing.T, ready bool) time.Time {
	t.Helper()
	asked := time.Now()
	tell(t.Context(), t, bed.pods[0], ready)
	var at time.Time
	eventually(t, func(context.Context) error {
		applied, err := fairlead.Programmed(bed.Agents[bed.own.Name].Log(), asked)
		if err == nil && len(applied) == 0 {
			err = fmt.Errorf("the agent of %s has programmed nothing since", bed.own.Name)
		}
		if err == nil {
			at = applied[0].At
		}
		return err
	})
	return at
}

func tell(ctx context.Context, t *testing.T, pod *core.Pod, ready bool) {
	t.Helper()
	if err := web.Tell(ctx, bed.Cluster.Client, pod, ready); err != nil {
		t.Error(err)
	}
}

// restartAgent kills the IPVS node's agent and waits until the next one is healthy.
func restartAgent(t *testing.T) {
	t.Helper()
	if err := bed.Agents[bed.own.Name].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := bed.StartAgent(bed.own); err != nil {
		t.Fatal(err)
	}
	if err := bed.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// balancers are two load-balancer IPs, one of each family, that belong to nobody. They hold the index of the cluster, so
// that clusters on one machine stay apart.
func balancers() []netip.Addr {
	host := bed.Cluster.APIServerIPs()
	v4, v6 := host[0].As4(), host[1].As16()
	v4[1], v4[3] = 19, 100
	v6[7], v6[15] = 0xff, 100
	return []netip.Addr{netip.AddrFrom4(v4), netip.AddrFrom16(v6)}
}

// route leads the host's packets for the load-balancer IPs to the IPVS node, until the test ends.
func route(t *testing.T) {
	t.Helper()
	for family, addr := range balancers() {
		version, prefix := []string{"-4", "-6"}[family], netip.PrefixFrom(addr, addr.BitLen()).String()
		words := []string{version, "route", "replace", prefix, "via", bed.own.IPs[family].String()}
		if out, err := exec.CommandContext(t.Context(), "ip", words...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", words, err, out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", version, "route", "flush", prefix).Run() })
	}
}

func nodePort(addr netip.Addr, protocol string) netip.AddrPort {
	i := slices.IndexFunc(bed.svc.Spec.Ports, func(p core.ServicePort) bool { return p.Name == protocol })
	return netip.AddrPortFrom(addr, uint16(bed.svc.Spec.Ports[i].NodePort))
}

// eventually tries until there is no error: what was just written to the API server has to come to the kernel first.
func eventually(t *testing.T, try func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}
