package e2e

import (
	"context"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/workload"
)

// onFirstNode makes a Service have its only Pod on the first node.
func onFirstNode(s *core.ServiceSpec) { s.Selector = map[string]string{role: "one"} }

// TestE2EExternalTrafficPolicyLocal keeps the client's address where there is a Pod and drops where there is none, and
// leads the cluster's own clients to any Pod.
func TestE2EExternalTrafficPolicyLocal(t *testing.T) {
	first, third := bed.Cluster.Nodes[0], bed.Cluster.Nodes[2]
	atFirst, atThird := externals(20), externals(21)
	route(t, first, atFirst...)
	route(t, third, atThird...)
	svc := mount(t, "external-local", func(s *core.ServiceSpec) {
		onFirstNode(s)
		s.Type, s.ExternalTrafficPolicy = core.ServiceTypeLoadBalancer, core.ServiceExternalTrafficPolicyLocal
	})
	svc.balance(t, vips(append(atFirst, atThird...)...)...)
	one := answers(bed.one.Name)
	for name, family := range families() {
		for _, protocol := range protocols() {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				for _, c := range insiders() {
					c.expect(t, protocol, svc.clusterIP(family), one.keeping())
					c.expect(t, protocol, at(atThird[family]), one.keeping())
					c.expect(t, protocol, svc.nodePort(c.node, family, protocol), one.keeping())
				}
				outside(first).expect(t, protocol, at(atFirst[family]), one.keeping())
				outside(first).expect(t, protocol, svc.nodePort(first, family, protocol), one.keeping())
				outside(third).expect(t, protocol, at(atThird[family]), want{fate: dropped})
				outside(third).expect(t, protocol, svc.nodePort(third, family, protocol), want{fate: dropped})
			})
		}
	}
}

// TestE2EInternalTrafficPolicyLocal serves cluster IPs where there is a Pod and drops where there is none; node ports do
// not mind.
func TestE2EInternalTrafficPolicyLocal(t *testing.T) {
	svc := mount(t, "internal-local", func(s *core.ServiceSpec) {
		onFirstNode(s)
		local := core.ServiceInternalTrafficPolicyLocal
		s.Type, s.InternalTrafficPolicy = core.ServiceTypeNodePort, &local
	})
	first, third := bed.Cluster.Nodes[0], bed.Cluster.Nodes[2]
	one := answers(bed.one.Name)
	for name, family := range families() {
		for _, protocol := range protocols() {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				for _, n := range bed.Cluster.Nodes {
					outside(n).expect(t, protocol, svc.nodePort(n, family, protocol), one)
				}
				for _, c := range []client{inPod(bed.beside), onNode(first)} {
					c.expect(t, protocol, svc.clusterIP(family), one.keeping())
				}
				for _, c := range []client{inPod(bed.apart), onNode(third)} {
					c.expect(t, protocol, svc.clusterIP(family), want{fate: dropped})
				}
			})
		}
	}
}

// TestE2ENoEndpoints refuses at once, whatever the policy.
func TestE2ENoEndpoints(t *testing.T) {
	third := bed.Cluster.Nodes[2]
	withoutRedirects(t, third)
	for i, policy := range []core.ServiceExternalTrafficPolicy{core.ServiceExternalTrafficPolicyCluster, core.ServiceExternalTrafficPolicyLocal} {
		t.Run(string(policy), func(t *testing.T) {
			balancer, external := externals(byte(30+2*i)), externals(byte(31+2*i))
			route(t, third, balancer...)
			route(t, third, external...)
			svc := mount(t, []string{"empty-cluster", "empty-local"}[i], func(s *core.ServiceSpec) {
				s.Type, s.ExternalTrafficPolicy = core.ServiceTypeLoadBalancer, policy
				s.Selector = map[string]string{role: "nobody"}
				s.ExternalIPs = []string{external[0].String(), external[1].String()}
			})
			svc.balance(t, vips(balancer...)...)
			for _, family := range families() {
				for _, protocol := range protocols() {
					// The node itself is not asked about load-balancer and external IPs: see docs/semantics.md.
					for _, c := range []client{inPod(bed.apart), onNode(third)} {
						c.expect(t, protocol, svc.clusterIP(family), want{fate: refused})
						c.expect(t, protocol, svc.nodePort(third, family, protocol), want{fate: refused})
					}
					for _, target := range publicTargets(svc, third, family, protocol) {
						inPod(bed.apart).expect(t, protocol, target, want{fate: refused})
						outside(third).expect(t, protocol, target, want{fate: refused})
					}
				}
			}
		})
	}
}

// withoutRedirects lets a node send no ICMP redirects until the test ends. Packets for virtual IPs come in where its
// default route leads out, so it would; and each redirect sets the clock back by which the kernel grants one refusal a
// second (ip_rt_send_redirect and inet_peer_xrlim_allow share inet_peer.rate_last), so that none would follow a first few.
func withoutRedirects(t *testing.T, n *cluster.Node) {
	t.Helper()
	write := func(ctx context.Context, value string) {
		const files = "/proc/sys/net/ipv4/conf/all/send_redirects /proc/sys/net/ipv4/conf/eth0/send_redirects"
		if _, err := n.Run(ctx, "sh", "-c", "echo "+value+" | tee "+files); err != nil {
			t.Error(err)
		}
	}
	write(t.Context(), "0")
	t.Cleanup(func() { write(context.WithoutCancel(t.Context()), "1") })
}

// TestE2ESourceRanges lets the third node's Pods alone use the load-balancer IPs; other addresses are for everybody.
func TestE2ESourceRanges(t *testing.T) {
	first, third := bed.Cluster.Nodes[0], bed.Cluster.Nodes[2]
	balancer := externals(40)
	route(t, first, balancer...)
	svc := mount(t, "ranges", func(s *core.ServiceSpec) {
		s.Type = core.ServiceTypeLoadBalancer
		for _, pods := range third.PodCIDRs {
			s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, pods.String())
		}
	})
	svc.balance(t, vips(balancer...)...)
	both := answers(bed.one.Name, bed.two.Name)
	for name, family := range families() {
		t.Run(name, func(t *testing.T) {
			inPod(bed.apart).expect(t, workload.TCP, at(balancer[family]), both)
			for _, c := range insiders() {
				c.expect(t, workload.TCP, svc.clusterIP(family), both.keeping())
				c.expect(t, workload.TCP, svc.nodePort(c.node, family, workload.TCP), both)
			}
			outside(first).expect(t, workload.TCP, svc.nodePort(first, family, workload.TCP), both)
			for _, protocol := range protocols() {
				for _, c := range []client{outside(first), inPod(bed.beside), onNode(first), onNode(third)} {
					c.expect(t, protocol, at(balancer[family]), want{fate: dropped})
				}
			}
		})
	}
	svc.change(t, func(s *core.ServiceSpec) { s.LoadBalancerSourceRanges = []string{"0.0.0.0/0", " ::/0 "} })
	for _, family := range families() {
		outside(first).expect(t, workload.TCP, at(balancer[family]), both)
	}
}
