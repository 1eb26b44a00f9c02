package installed

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/traffic"
	"github.com/fairlead/fairlead/test/web"
	"github.com/fairlead/fairlead/test/workload"
)

const (
	// rate is each client's new connections a second.
	rate = 40
	// connections is how many each of the clients holds that keep theirs; keptRate is their requests a second, all together.
	connections, keptRate = 250, 50
	// settled is when each connection has been asked over at least once.
	settled = (connections/keptRate + 1) * time.Second
	// patience of a request: longer than a lost packet's first two repetitions.
	patience = 5 * time.Second
)

// target is a Service with node ports, on both families.
type target struct {
	vips     []netip.Addr
	nodePort int
}

// addresses are all at which clients of a node reach the Service.
func (s target) addresses() []string {
	var list []string
	for _, vip := range s.vips {
		list = append(list, netip.AddrPortFrom(vip, web.EchoPort).String())
	}
	for _, n := range bed.Cluster.Nodes {
		list = append(list, netip.AddrPortFrom(n.IPs[0], uint16(s.nodePort)).String())
	}
	return list
}

// makeService makes a Service for Pods with the label app=NAME, until the test ends.
func makeService(t *testing.T, name string) target {
	t.Helper()
	services, both := bed.Cluster.Client.CoreV1().Services(web.Namespace), core.IPFamilyPolicyRequireDualStack
	made, err := services.Create(t.Context(), &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec: core.ServiceSpec{
			Type: core.ServiceTypeNodePort, IPFamilyPolicy: &both, Selector: map[string]string{"app": name},
			Ports: []core.ServicePort{{Name: "echo", Port: web.EchoPort}},
		},
	}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(t.Context()), name, meta.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	s := target{nodePort: int(made.Spec.Ports[0].NodePort)}
	for _, ip := range made.Spec.ClusterIPs {
		s.vips = append(s.vips, netip.MustParseAddr(ip))
	}
	return s
}

// expectFate waits until every client meets the same at every address of a Service, and then fails if any meets another
// fate: "" is an answer, else part of an error's text.
func expectFate(t *testing.T, s target, fate string) {
	t.Helper()
	pods, err := web.ReadyPods(t.Context(), bed.Cluster.Client)
	if err != nil {
		t.Fatal(err)
	}
	until(t, fmt.Sprintf("%v to meet fate %q", s, fate), func() bool { return len(fates(t, pods, s, fate)) == 0 })
	if wrong := fates(t, pods, s, fate); len(wrong) > 0 {
		t.Errorf("%v: after all had met fate %q: %s", s, fate, strings.Join(wrong, "; "))
	}
}

// fates returns what clients meet that is not the fate: from each node, and from a Pod on each.
func fates(t *testing.T, pods []core.Pod, s target, fate string) (wrong []string) {
	t.Helper()
	for _, address := range s.addresses() {
		cfg := workload.AskConfig{Protocol: workload.TCP, Target: address, Timeout: 2 * time.Second, Count: 1}
		for _, n := range bed.Cluster.Nodes {
			samples, err := traffic.AskFromNode(t.Context(), n, bed.Cluster.Workload(), cfg)
			wrong = append(wrong, judge(fate, n.Name+" to "+address, samples, err)...)
			i := slices.IndexFunc(pods, func(p core.Pod) bool { return p.Spec.NodeName == n.Name })
			if i < 0 {
				continue // the Pods are spread, as far as there is room
			}
			samples, err = traffic.AskFromServer(t.Context(), netip.AddrPortFrom(netip.MustParseAddr(pods[i].Status.PodIP), web.HTTPPort).String(), cfg)
			wrong = append(wrong, judge(fate, "Pod on "+n.Name+" to "+address, samples, err)...)
		}
	}
	return wrong
}

// judge says what samples of a journey are not as the fate has it.
func judge(fate, journey string, samples []workload.Sample, err error) []string {
	if err != nil {
		return []string{err.Error()}
	}
	for _, s := range samples {
		if fate == "" && s.Error != "" || fate != "" && !strings.Contains(s.Error, fate) {
			return []string{fmt.Sprintf("from %s: answered by %q, error %q", journey, s.Pod, s.Error)}
		}
	}
	return nil
}

// load is what goes on all the time.
type load struct {
	// outside is the Service at whose node ports those outside the cluster ask.
	outside     target
	fresh, kept []traffic.Client
}

// startLoad sends from a Pod, from both nodes and from outside, to the cluster IP and to node ports: new connections, and
// 1,000 that stay.
func startLoad(t *testing.T) *load {
	t.Helper()
	outside := makeService(t, "outside") // its Pods are the application's, which its selector does not name yet
	if _, err := bed.Kubectl(t.Context(), "patch", "service", "outside", "--patch", `{"spec": {"selector": {"app": "web"}}}`); err != nil {
		t.Fatal(err)
	}
	expectFate(t, outside, "")
	c, l := bed.Cluster, &load{outside: outside}
	http := workload.LoadConfig{Protocol: workload.HTTP, Target: fmt.Sprintf("%s:%d", bed.vip, web.Port), Rate: rate, Timeout: patience}
	kept := workload.LoadConfig{Protocol: workload.TCP, Target: fmt.Sprintf("%s:%d", bed.vip, web.EchoPort), Rate: keptRate, Timeout: patience, Keep: true, Connections: connections}
	start := func(into *[]traffic.Client, client traffic.Client, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		*into = append(*into, client)
	}
	ctx := context.WithoutCancel(t.Context())
	fromPod := func(name string, cfg workload.LoadConfig, into *[]traffic.Client) {
		t.Helper()
		cfg.Client = name
		client, err := traffic.FromPod(t.Context(), c, c.Nodes[0].Name, cfg)
		start(into, client, err)
	}
	fromPod("fresh-in-pod", http, &l.fresh)
	fromPod("kept-in-pod", kept, &l.kept)
	for i, n := range c.Nodes {
		cfg := http
		cfg.Client = "fresh-on-" + n.Name
		client, err := traffic.FromNode(ctx, n, c.Workload(), cfg)
		start(&l.fresh, client, err)
		cfg = workload.LoadConfig{Client: "fresh-outside-to-" + n.Name, Protocol: workload.TCP, Target: outside.addresses()[2+i], Rate: rate, Timeout: patience}
		client, err = traffic.FromHost(ctx, cfg)
		start(&l.fresh, client, err)
		cfg = kept
		cfg.Client = "kept-on-" + n.Name
		client, err = traffic.FromNode(ctx, n, c.Workload(), cfg)
		start(&l.kept, client, err)
	}
	kept.Client, kept.Target = "kept-outside", outside.addresses()[2]
	client, err := traffic.FromHost(ctx, kept)
	start(&l.kept, client, err)
	after(t, settled)
	return l
}

// verdict ends the traffic: no connection was lost, and at most one new one in 10,000 failed.
func (l *load) verdict(t *testing.T) {
	t.Helper()
	after(t, settled)
	kept, fresh := stop(t, l.kept), stop(t, l.fresh)
	sources := map[string]int{}
	for _, s := range kept {
		if s.Error == "" {
			sources[s.Client+" "+s.Source+" "+s.Pod]++ // two to different Pods may have one source port behind a node
		}
	}
	k, f := traffic.Summarise(kept), traffic.Summarise(fresh)
	t.Logf("%d connections stayed, %d requests over them, %d failed; %d new connections, %d failed", len(sources), k.Sent, k.Failed, f.Sent, f.Failed)
	if want := len(l.kept) * connections; len(sources) != want || k.Failed > 0 {
		t.Errorf("%d of %d requests over connections that stay failed, %d connections were seen, want %d: %s", k.Failed, k.Sent, len(sources), want, failures(kept))
	}
	if f.Sent < 1000 || f.Failed*10_000 > f.Sent {
		t.Errorf("%d of %d new connections failed: %s", f.Failed, f.Sent, failures(fresh))
	}
}

// failures are told by client and error: how many, from when to when.
func failures(samples []workload.Sample) string {
	type span struct {
		n           int
		first, last time.Time
	}
	spans := map[string]span{}
	for _, s := range samples {
		if s.Error == "" {
			continue
		}
		key := s.Client + ": " + s.Error[strings.LastIndex(s.Error, "->")+1:]
		x := spans[key]
		if x.n == 0 || s.Time.Before(x.first) {
			x.first = s.Time
		}
		if s.Time.After(x.last) {
			x.last = s.Time
		}
		x.n++
		spans[key] = x
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(spans)) {
		x := spans[key]
		lines = append(lines, fmt.Sprintf("%d times from %s to %s: %s", x.n, x.first.Format(time.StampMilli), x.last.Format(time.StampMilli), key))
	}
	return strings.Join(lines, "\n")
}

func stop(t *testing.T, clients []traffic.Client) (all []workload.Sample) {
	t.Helper()
	for _, client := range clients {
		samples, err := client.Stop(t.Context())
		if err != nil || len(samples) == 0 {
			t.Errorf("a client ended with %d samples: %v", len(samples), err)
		}
		all = append(all, samples...)
	}
	return all
}

// kernelOf is what netfilter holds on a node, in both flavours of iptables and with all sets, as text.
func kernelOf(ctx context.Context, n *cluster.Node) (string, error) {
	var all []string
	for _, command := range []string{"nft list ruleset", "iptables-legacy-save", "ip6tables-legacy-save", "ipset list"} {
		out, err := n.Run(ctx, strings.Fields(command)...)
		if err != nil {
			return "", err
		}
		all = append(all, string(out))
	}
	return strings.Join(all, "\n"), nil
}

// after lets traffic run.
func after(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(context.Cause(t.Context()))
	}
}

// until waits for something that offers no event.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline, again := time.After(time.Minute), time.NewTicker(lookAgain)
	defer again.Stop()
	for !done() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("waited a minute for: %s", what)
		}
	}
}
