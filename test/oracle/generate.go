package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/proto/fwd"
)

// The address plan, by family: nodes 192.0.2.N and fd00:c::N; Pods of node N 10.244.N.0/24 and fd00:244:N::/64; cluster IPs
// 10.96.0.0/16 and fd00:96::/112; external IPs 203.0.113.0/25 and 2001:db8:e::/64, load-balancer IPs 203.0.113.128/25 and
// 2001:db8:1b::/64; clients from outside 198.18.0.0/24 and 2001:db8:c::/64. The node in question is number 1.
const (
	thisNode   = "node-1"
	bridge     = "cni0"
	podDevice  = "veth5f"
	podPrefix  = "veth"
	nodeDevice = "eth0"

	// labelProxyName names the proxy that a Service belongs to (KEP-2447).
	labelProxyName = "service.kubernetes.io/service-proxy-name"
)

// zones are those that nodes can be in; "" is a node without the label.
func zones() []string { return []string{"a", "b", "c", ""} }

// generator makes one cluster. All chance comes from rand.
type generator struct {
	*rand.Rand
	cluster Cluster
	// used counts what has been handed out, so that names, ports and addresses differ.
	used map[string]int
}

// Generate makes the cluster number n of a seed; the same numbers make the same cluster.
func Generate(seed, n uint64) *Cluster {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, n)), used: map[string]int{}}
	g.nodes()
	g.config()
	services := 1 + g.IntN(4)
	if g.chance(3) {
		services = 50 // enough for a backend's ways to find one of many
	}
	for range services {
		g.service()
	}
	return &g.cluster
}

// chance is true in p of 100 cases.
func (g *generator) chance(p int) bool { return g.IntN(100) < p }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// count hands out 1, 2, 3, … of a kind.
func (g *generator) count(kind string) int {
	g.used[kind]++
	return g.used[kind]
}

// addr is number n in a range.
func addr(family fwd.Family, v4, v6 string, n int) string {
	base := map[fwd.Family]string{fwd.IPv4: v4, fwd.IPv6: v6}[family]
	a := netip.MustParseAddr(base)
	for range n {
		a = a.Next()
	}
	return a.String()
}

func nodeAddr(family fwd.Family, node int) string { return addr(family, "192.0.2.0", "fd00:c::", node) }

func podCIDR(family fwd.Family, node int) string {
	if family == fwd.IPv6 {
		return fmt.Sprintf("fd00:244:%d::/64", node)
	}
	return fmt.Sprintf("10.244.%d.0/24", node)
}

func podAddr(family fwd.Family, node, n int) string {
	return addr(family, fmt.Sprintf("10.244.%d.0", node), fmt.Sprintf("fd00:244:%d::", node), n)
}

func (g *generator) nodes() {
	for n := 1; n <= 3; n++ {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", n), Labels: map[string]string{}}}
		if zone := pick(g, zones()...); zone != "" {
			node.Labels[corev1.LabelTopologyZone] = zone
		}
		for _, f := range fwd.Families() {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, podCIDR(f, n))
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: nodeAddr(f, n)})
		}
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		if n > 1 {
			g.cluster.OtherNodes = append(g.cluster.OtherNodes, node)
			continue
		}
		g.cluster.Node = node
	}
	// The second address of each family is one that no Node object tells of; the third is the bridge's.
	for _, f := range fwd.Families() {
		length := map[fwd.Family]int{fwd.IPv4: 24, fwd.IPv6: 64}[f]
		for _, a := range []string{nodeAddr(f, 1), addr(f, "198.51.100.0", "fd00:d::", 1), podAddr(f, 1, 1)} {
			g.cluster.Interfaces = append(g.cluster.Interfaces, fmt.Sprintf("%s/%d", a, length))
		}
	}
}

func (g *generator) config() {
	c := Config{
		DetectLocal:        pick(g, "ClusterCIDR", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", ""),
		MasqueradeAll:      g.chance(15),
		MasqueradeBit:      14,
		LocalhostNodePorts: g.chance(5),
		ConntrackLiberal:   g.chance(10),
		AllowedExternalIPs: []string{"0.0.0.0/0", "::/0"},
	}
	switch c.DetectLocal {
	case "ClusterCIDR":
		c.ClusterCIDRs = pick(g, []string{"10.244.0.0/16", "fd00:244::/32"}, []string{"fd00:244::/32", "10.244.0.0/16"}, []string{"10.244.0.0/16"})
	case "BridgeInterface":
		c.BridgeInterface = bridge
	case "InterfaceNamePrefix":
		c.InterfaceNamePrefix = podPrefix
	}
	if g.chance(20) {
		c.MasqueradeBit = g.IntN(32)
	}
	if g.chance(25) {
		c.NodePortAddresses = pick(g, []string{"192.0.2.0/24"}, []string{"fd00:c::/64", "192.0.2.0/24"}, []string{"198.51.100.1/32"},
			[]string{"0.0.0.0/0"}, []string{"172.31.0.0/16"}, []string{"192.0.2.0/24", "127.0.0.0/8", "fd00:d::/64"})
	}
	if g.chance(6) {
		c.AllowedExternalIPs = pick(g, nil, []string{"203.0.113.0/27", "2001:db8:e::/124"})
	}
	if g.chance(40) {
		c.ServiceCIDRs = pick(g, []string{"10.96.0.0/16", "fd00:96::/112"}, []string{"fd00:96::/112"})
	}
	g.cluster.Config = c
}

// families are those of a Service, the primary one first.
func (g *generator) families() []fwd.Family {
	f := slices.Clone(fwd.Families())
	if g.chance(50) {
		slices.Reverse(f)
	}
	return f[:1+g.IntN(2)]
}
