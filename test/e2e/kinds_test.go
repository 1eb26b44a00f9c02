package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/web"
	"github.com/fairlead/fairlead/test/workload"
)

// TestE2EServiceTypes asks every kind of virtual address, of every type of Service that has one, from everywhere.
func TestE2EServiceTypes(t *testing.T) {
	nodes := bed.Cluster.Nodes
	balancer, external := externals(10), externals(11)
	route(t, nodes[0], balancer...)
	route(t, nodes[2], external...)
	services := []mounted{
		mount(t, "type-cluster-ip", func(*core.ServiceSpec) {}),
		mount(t, "type-node-port", func(s *core.ServiceSpec) { s.Type = core.ServiceTypeNodePort }),
		mount(t, "type-load-balancer", func(s *core.ServiceSpec) {
			s.Type = core.ServiceTypeLoadBalancer
			s.ExternalIPs = []string{external[0].String(), external[1].String()}
		}),
	}
	services[2].balance(t, vips(balancer...)...)
	both := answers(bed.one.Name, bed.two.Name)
	for _, svc := range services {
		t.Run(svc.Name, func(t *testing.T) {
			for name, family := range families() {
				for _, protocol := range protocols() {
					t.Run(name+"/"+protocol, func(t *testing.T) {
						t.Parallel()
						for _, c := range append(insiders(), inPod(bed.one)) {
							c.expect(t, protocol, svc.clusterIP(family), both.keeping())
							for _, target := range publicTargets(svc, c.node, family, protocol) {
								c.expect(t, protocol, target, both)
							}
						}
						for _, target := range publicTargets(svc, nodes[0], family, protocol) {
							entry := nodes[0]
							if target.Addr() == external[family] {
								entry = nodes[2]
							}
							outside(entry).expect(t, protocol, target, both)
						}
					})
				}
			}
		})
	}
}

// publicTargets are what the world outside may ask: the Service's port on a node, its load-balancer and external IPs.
func publicTargets(svc mounted, n *cluster.Node, family int, protocol string) []netip.AddrPort {
	var all []netip.AddrPort
	if svc.Spec.Type != core.ServiceTypeClusterIP {
		all = append(all, svc.nodePort(n, family, protocol))
	}
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		all = append(all, at(netip.MustParseAddr(ingress.IP)))
	}
	for _, ip := range svc.Spec.ExternalIPs {
		all = append(all, at(netip.MustParseAddr(ip)))
	}
	return slices.DeleteFunc(all, func(a netip.AddrPort) bool { return a.Addr().Is4() != (family == 0) })
}

// TestE2EBalancerThatIsAProxy gives a Service load-balancer IPs with ipMode Proxy, at which this process listens: nodes
// and Pods must reach it rather than be led to Pods directly.
func TestE2EBalancerThatIsAProxy(t *testing.T) {
	balancers := bed.Cluster.ControllerIPs()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, len(balancers))
	for _, addr := range balancers {
		go func() {
			ended <- workload.Serve(ctx, workload.ServerConfig{Name: "balancer", TCP: at(addr).String(), UDP: at(addr).String()},
				slog.New(slog.DiscardHandler))
		}()
	}
	defer func() {
		cancel()
		for range balancers {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	svc := mount(t, "proxied", func(s *core.ServiceSpec) { s.Type = core.ServiceTypeLoadBalancer })
	vip := externals(12)
	route(t, bed.Cluster.Nodes[2], vip...)
	svc.balance(t, append(vips(vip...), ingresses(core.LoadBalancerIPModeProxy, balancers)...)...)
	for _, family := range families() {
		for _, c := range []client{inPod(bed.apart), onNode(bed.Cluster.Nodes[2])} {
			for _, protocol := range protocols() {
				// The first says that the node knows of the status, which the second depends on.
				c.expect(t, protocol, at(vip[family]), answers(bed.one.Name, bed.two.Name))
				c.expect(t, protocol, at(balancers[family]), answers("balancer").keeping())
			}
		}
	}
}

// TestE2ENamesWithoutForwarding asks cluster DNS for an ExternalName and a headless Service, and looks for rules of the
// headless one.
func TestE2ENamesWithoutForwarding(t *testing.T) {
	const headlessPort, controlPort = 7701, 7702
	mount(t, "elsewhere", func(s *core.ServiceSpec) {
		*s = core.ServiceSpec{Type: core.ServiceTypeExternalName, ExternalName: "web.default.svc.cluster.local"}
	})
	mount(t, "headless", func(s *core.ServiceSpec) {
		s.ClusterIP = core.ClusterIPNone
		s.Ports = []core.ServicePort{{Port: headlessPort, TargetPort: intstr.FromInt32(web.EchoPort)}}
	})
	control := mount(t, "control", func(s *core.ServiceSpec) {
		s.Ports = []core.ServicePort{{Port: controlPort, TargetPort: intstr.FromInt32(web.EchoPort)}}
	})
	var members []string
	for _, pod := range []*core.Pod{bed.one, bed.two} {
		for _, ip := range pod.Status.PodIPs {
			members = append(members, ip.IP)
		}
	}
	slices.Sort(members)
	n := bed.Cluster.Nodes[0]
	resolves(t, n, "elsewhere", bed.vip)
	resolves(t, n, "headless", members...)
	onNode(n).expect(t, workload.TCP, netip.AddrPortFrom(control.clusterIP(0).Addr(), controlPort), answers(bed.one.Name, bed.two.Name))
	rules := kernelRules(t, n)
	if !strings.Contains(rules, fmt.Sprint(controlPort)) {
		t.Errorf("no rule for port %d of Service %s, which has a cluster IP:\n%s", controlPort, control.Name, rules)
	}
	if strings.Contains(rules, fmt.Sprint(headlessPort)) {
		t.Errorf("a rule for port %d of a headless Service:\n%s", headlessPort, rules)
	}
}

// resolves holds that a Service's name has these addresses, soon. DNS answers for as long as 30 s what it answered once.
func resolves(t *testing.T, n *cluster.Node, service string, want ...string) {
	t.Helper()
	server := netip.AddrPortFrom(bed.Cluster.DNSIPs()[0], 53).String()
	var got []string
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, time.Minute, true, func(ctx context.Context) (bool, error) {
		out, err := n.Run(ctx, bed.Cluster.Workload(), "resolve", "--server", server, "--name", service+"."+web.Namespace+".svc.cluster.local.")
		got = strings.Fields(string(out))
		return err == nil && slices.Equal(got, want), nil
	})
	if err != nil {
		t.Errorf("%s resolves to %v, want %v: %v", service, got, want, err)
	}
}

// kernelRules is all that a node's kernel holds, as the tools of every mode print it.
func kernelRules(t *testing.T, n *cluster.Node) string {
	t.Helper()
	tools := [][]string{{"iptables-save"}, {"ip6tables-save"}, {"nft", "list", "ruleset"}}
	if bed.Mode(t.Context()) == "ipvs" {
		tools = append(tools, []string{"ipvsadm", "--save", "--numeric"})
	}
	var all strings.Builder
	for _, tool := range tools {
		out, err := n.Run(t.Context(), tool...)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(out)
	}
	return all.String()
}

// TestE2EEndpointSlicesOfHeadlessServices are written, though nothing is forwarded.
func TestE2EEndpointSlicesOfHeadlessServices(t *testing.T) {
	mount(t, "bare", func(s *core.ServiceSpec) { s.ClusterIP, s.Ports = core.ClusterIPNone, nil })
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		slices, err := bed.Cluster.Client.DiscoveryV1().EndpointSlices(web.Namespace).List(ctx, meta.ListOptions{
			LabelSelector: "kubernetes.io/service-name=bare," + core.IsHeadlessService,
		})
		if err != nil {
			return false, fmt.Errorf("list EndpointSlices: %w", err)
		}
		addresses := 0
		for _, slice := range slices.Items {
			addresses += len(slice.Endpoints)
		}
		return len(slices.Items) == 2 && addresses == 4, nil
	})
	if err != nil {
		t.Errorf("want a slice of each family with two endpoints each: %v", err)
	}
}
