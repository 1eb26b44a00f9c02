package cluster

import (
	"fmt"
	"net/netip"
)

// Bounds of the address plan: one octet holds the index, one the node.
const (
	MaxIndex = 63
	MaxNodes = 100
)

const apiServerPort = 6443

// addresses is the plan of one cluster, in both families, IPv4 first in every pair.
// 198.18.0.0/15 is the range of RFC 2544 for tests, which no site routes; the IPv6
// ones are unique local addresses. Service ranges live inside the nodes only and so
// are the same for all clusters.
type addresses struct{ index int }

// pair parses an address of each family.
func pair(v4, v6 string) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}
}

func prefixes(addrs []netip.Addr, bits4, bits6 int) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(addrs[0], bits4), netip.PrefixFrom(addrs[1], bits6)}
}

func (a addresses) onLink(host int) []netip.Addr {
	return pair(fmt.Sprintf("198.18.%d.%d", a.index, host), fmt.Sprintf("fdf1:1ead:%x::%x", a.index, host))
}

// linkBits are the prefix lengths of the network that host and nodes share.
func linkBits(addr netip.Addr) int {
	if addr.Is4() {
		return 24
	}
	return 64
}

// apiServer is where the API server listens.
func (a addresses) apiServer() []netip.Addr { return a.onLink(1) }

// controller is a second address of the host, for programs of the product: a test
// cuts a node from it without cutting the node's kubelet from the API server.
func (a addresses) controller() []netip.Addr { return a.onLink(2) }

// testBed is a third address of the host, for the test bed's own talk with the nodes: it is never cut.
func (a addresses) testBed() []netip.Addr { return a.onLink(3) }

// node is the address of the n-th node, counted from 1.
func (a addresses) node(n int) []netip.Addr { return a.onLink(100 + n) }

func (a addresses) pods() []netip.Prefix {
	return prefixes(pair(fmt.Sprintf("10.%d.0.0", 128+a.index), fmt.Sprintf("fdf1:1ead:%x:100::", a.index)), 16, 56)
}

func (a addresses) nodePods(n int) []netip.Prefix {
	return prefixes(pair(fmt.Sprintf("10.%d.%d.0", 128+a.index, n), fmt.Sprintf("fdf1:1ead:%x:%x::", a.index, 0x100+n)), 24, 64)
}

func (a addresses) services() []netip.Prefix {
	return prefixes(pair("10.96.0.0", "fdf1:1ead:ffff::"), 16, 112)
}

// dns is the virtual address of cluster DNS.
func (a addresses) dns() []netip.Addr { return pair("10.96.0.10", "fdf1:1ead:ffff::a") }

// kubernetes is the virtual address of the API server: the first of each range.
func (a addresses) kubernetes() []netip.Addr { return pair("10.96.0.1", "fdf1:1ead:ffff::1") }

// etcd is a loopback address of its own, so that its usual ports are free.
func (a addresses) etcd() netip.Addr {
	return netip.AddrFrom4([4]byte{127, 18, byte(a.index), 1})
}

// name is the prefix of everything the cluster makes on the machine; network devices
// bear it too, so it must stay short.
func (a addresses) name() string { return fmt.Sprintf("fl%d", a.index) }

func (a addresses) nodeName(n int) string { return fmt.Sprintf("node%d", n) }

// endpoint is the URL of the API server.
func (a addresses) endpoint() string {
	return "https://" + netip.AddrPortFrom(a.apiServer()[0], apiServerPort).String()
}
