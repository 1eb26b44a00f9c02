package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
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

// health is what a healthCheckNodePort says.
type health struct {
	Service struct {
		Namespace, Name string
	}
	LocalEndpoints      int
	ServiceProxyHealthy bool
}

// expectHealth holds that a Service's health-check port on a node says, soon, how many ready Pods the node has.
func expectHealth(t *testing.T, svc mounted, n *cluster.Node, ready int) {
	t.Helper()
	code := http.StatusOK
	if ready == 0 {
		code = http.StatusServiceUnavailable
	}
	for _, addr := range n.IPs {
		url := "http://" + netip.AddrPortFrom(addr, uint16(svc.Spec.HealthCheckNodePort)).String()
		if err := soon(t, func(ctx context.Context) error { return checkHealth(ctx, url, code, ready) }); err != nil {
			t.Errorf("%s at %s: %v", url, n.Name, err)
		}
	}
}

func checkHealth(ctx context.Context, url string, code, ready int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var body health
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		return fmt.Errorf("read answer of code %d: %w", response.StatusCode, err)
	}
	weight := response.Header.Get("X-Load-Balancing-Endpoint-Weight")
	if response.StatusCode != code || body.LocalEndpoints != ready || weight != strconv.Itoa(ready) || !body.ServiceProxyHealthy {
		return fmt.Errorf("code %d, weight %q, %+v: want code %d and %d endpoints", response.StatusCode, weight, body, code, ready)
	}
	return nil
}

// TestE2EHealthCheckNodePort tells a load balancer which nodes have ready Pods.
func TestE2EHealthCheckNodePort(t *testing.T) {
	svc := mount(t, "health", func(s *core.ServiceSpec) {
		onFirstNode(s)
		s.Type, s.ExternalTrafficPolicy = core.ServiceTypeLoadBalancer, core.ServiceExternalTrafficPolicyLocal
	})
	first, third := bed.Cluster.Nodes[0], bed.Cluster.Nodes[2]
	expectHealth(t, svc, first, 1)
	expectHealth(t, svc, third, 0)
	tell(t, bed.one, false)
	expectHealth(t, svc, first, 0)
	tell(t, bed.one, true)
	expectHealth(t, svc, first, 1)
}

// tell turns a Pod, which is ready again when the test ends.
func tell(t *testing.T, pod *core.Pod, ready bool) {
	t.Helper()
	if !ready {
		t.Cleanup(func() {
			if err := web.Tell(context.WithoutCancel(t.Context()), bed.Cluster.Client, pod, true); err != nil {
				t.Error(err)
			}
		})
	}
	if err := web.Tell(t.Context(), bed.Cluster.Client, pod, ready); err != nil {
		t.Fatal(err)
	}
}

// TestE2EAffinity keeps every client with one Pod, at all addresses of the Service, until the Pod leaves.
func TestE2EAffinity(t *testing.T) {
	third := bed.Cluster.Nodes[2]
	balancer := externals(50)
	route(t, third, balancer...)
	svc := mount(t, "affinity", func(s *core.ServiceSpec) {
		s.Type, s.SessionAffinity = core.ServiceTypeLoadBalancer, core.ServiceAffinityClientIP
	})
	svc.balance(t, vips(balancer...)...)
	type session struct {
		client client
		family int
		pods   map[netip.AddrPort]string
	}
	var sessions []session
	for _, family := range families() {
		for _, c := range []client{outside(third), onNode(third), inPod(bed.apart), inPod(bed.beside)} {
			s := session{c, family, map[netip.AddrPort]string{}}
			for _, target := range append(publicTargets(svc, c.node, family, workload.TCP), svc.clusterIP(family)) {
				if c.name != "outside" || target != svc.clusterIP(family) {
					s.pods[target] = only(t, c, target, "")
				}
			}
			sessions = append(sessions, s)
		}
	}
	// In IPVS each address has an affinity of its own: see docs/semantics.md.
	if bed.Mode(t.Context()) != "ipvs" {
		for _, s := range sessions {
			sameEverywhere(t, s.client, s.pods)
		}
	}
	tell(t, bed.one, false)
	for _, s := range sessions {
		for target := range s.pods {
			only(t, s.client, target, bed.two.Name)
		}
	}
	tell(t, bed.one, true)
	for _, s := range sessions {
		for target := range s.pods {
			only(t, s.client, target, bed.two.Name)
		}
	}
}

// sameEverywhere holds that a client met one Pod at all addresses. A node's own requests bear the address that routing
// picks for each target, and are a client per address.
func sameEverywhere(t *testing.T, c client, pods map[netip.AddrPort]string) {
	t.Helper()
	seen := map[string]bool{}
	for _, pod := range pods {
		seen[pod] = true
	}
	if len(seen) != 1 && c.name != c.node.Name {
		t.Errorf("%s meets different Pods at the addresses of one Service: %v", c.name, pods)
	}
}

// only holds that all requests of a client to a target are answered by one Pod, soon, and returns it; if pod is not
// empty it must be that one.
func only(t *testing.T, c client, target netip.AddrPort, pod string) string {
	t.Helper()
	var met string
	err := soon(t, func(ctx context.Context) error {
		cfg := workload.AskConfig{Client: c.name, Protocol: workload.TCP, Target: target.String(), Timeout: time.Second, Count: 1}
		samples, err := c.ask(ctx, cfg)
		if err == nil && samples[0].Error == "" {
			cfg.Count = draws
			samples, err = c.ask(ctx, cfg)
		}
		if err != nil {
			return err
		}
		sum := traffic.Summarise(samples)
		for met = range sum.ByPod {
		}
		if sum.Failed > 0 || len(sum.ByPod) != 1 || pod != "" && met != pod {
			return fmt.Errorf("answers by Pod: %v, want one, %q; %d failed: %v", sum.ByPod, pod, sum.Failed, sum.Errors)
		}
		return nil
	})
	if err != nil {
		t.Errorf("from %s to %s: %v", c.name, target, err)
	}
	return met
}

// TestE2ETerminatingFallback deletes the only Pod of a node under both policies Local, while another node has a ready
// one: the Pod serves to its end.
func TestE2ETerminatingFallback(t *testing.T) {
	ctx, second := t.Context(), bed.Cluster.Nodes[1]
	balancer := externals(60)
	route(t, second, balancer...)
	svc := mount(t, "farewell", func(s *core.ServiceSpec) {
		local := core.ServiceInternalTrafficPolicyLocal
		s.Selector = map[string]string{"app": "farewell"}
		s.Type, s.ExternalTrafficPolicy, s.InternalTrafficPolicy = core.ServiceTypeLoadBalancer, core.ServiceExternalTrafficPolicyLocal, &local
	})
	svc.balance(t, vips(balancer...)...)
	leaver := startPod(t, web.PodConfig{Name: "leaver", Node: second.Name, Labels: svc.Spec.Selector, Drain: time.Minute, StayReady: true})
	startPod(t, web.PodConfig{Name: "stayer", Node: bed.Cluster.Nodes[0].Name, Labels: svc.Spec.Selector})
	mine := answers(leaver.Name).keeping()
	expectHealth(t, svc, second, 1)
	var steady []traffic.Client
	for _, family := range families() {
		outside(second).expect(t, workload.TCP, at(balancer[family]), mine)
		steady = append(steady, fromHost(t, "outside", at(balancer[family])))
		steady = append(steady, fromNode(t, second, workload.LoadConfig{Protocol: workload.TCP, Target: svc.clusterIP(family).String()}))
	}
	if err := bed.Cluster.Client.CoreV1().Pods(web.Namespace).Delete(ctx, leaver.Name, meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectHealth(t, svc, second, 0) // from here on the kernel holds the Pod as one that ends
	for _, family := range families() {
		for _, protocol := range protocols() {
			outside(second).expect(t, protocol, at(balancer[family]), mine)
			onNode(second).expect(t, protocol, svc.clusterIP(family), mine)
		}
	}
	after(ctx, t, time.Second)
	stopAll(t, steady, func(s workload.Sample) bool { return s.Pod == leaver.Name })
}

// startPod makes a Pod that ends with the test.
func startPod(t *testing.T, cfg web.PodConfig) *core.Pod {
	t.Helper()
	t.Cleanup(func() {
		if err := web.EndPod(context.WithoutCancel(t.Context()), bed.Cluster.Client, cfg.Name); err != nil {
			t.Error(err)
		}
	})
	pod, err := web.StartPod(t.Context(), bed.Cluster.Client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// fromHost starts a steady client outside, over TCP with a new connection for each request.
func fromHost(t *testing.T, name string, target netip.AddrPort) traffic.Client {
	t.Helper()
	client, err := traffic.FromHost(t.Context(), steady(workload.LoadConfig{Client: name, Protocol: workload.TCP, Target: target.String()}))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func fromNode(t *testing.T, n *cluster.Node, cfg workload.LoadConfig) traffic.Client {
	t.Helper()
	cfg.Client = n.Name
	client, err := traffic.FromNode(t.Context(), n, bed.Cluster.Workload(), steady(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func steady(cfg workload.LoadConfig) workload.LoadConfig {
	cfg.Rate, cfg.Timeout = 20, 5*time.Second
	return cfg
}

// stopAll ends steady clients; each must have been at work, without a failure, and every answer right.
func stopAll(t *testing.T, clients []traffic.Client, right func(workload.Sample) bool) {
	t.Helper()
	for _, client := range clients {
		samples, err := client.Stop(t.Context())
		if err != nil {
			t.Error(err)
			continue
		}
		sum := traffic.Summarise(samples)
		if sum.Sent == 0 || sum.Failed > 0 {
			t.Errorf("%d of %d requests failed: %s", sum.Failed, sum.Sent, strings.Join(sum.Errors, "; "))
		}
		for _, s := range samples {
			if s.Error == "" && !right(s) {
				t.Errorf("wrong answer: %+v", s)
				break
			}
		}
	}
}
