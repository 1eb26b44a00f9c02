package hostinfo

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// primary is the word that stands for the node's primary addresses.
const primary = "primary"

// NodePortAddresses says which local addresses take NodePorts: the flag --nodeport-addresses, as kube-proxy has it. The
// zero value takes all. It is immutable.
type NodePortAddresses struct {
	primary bool
	// ranges by family; none takes all addresses of the family.
	ranges [2][]netip.Prefix
}

// ParseNodePortAddresses reads a list of prefixes of either family, or the single word "primary" for the first address of
// each family that the Node's status names. An empty list, and for a family a list without prefixes of it, takes all.
func ParseNodePortAddresses(list []string) (NodePortAddresses, error) {
	var n NodePortAddresses
	for _, s := range list {
		s = strings.TrimSpace(s)
		if s == primary {
			if len(list) > 1 {
				return NodePortAddresses{}, fmt.Errorf("nodeport addresses: %q stands alone: remove it or the prefixes", primary)
			}
			return NodePortAddresses{primary: true}, nil
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return NodePortAddresses{}, fmt.Errorf("nodeport addresses: %q: want a prefix such as 192.0.2.0/24, or %q", s, primary)
		}
		f := fwd.FamilyOf(p.Addr())
		n.ranges[f] = append(n.ranges[f], p.Masked())
	}
	return n, nil
}

// All reports whether every local address of a family takes NodePorts.
func (n NodePortAddresses) All(f fwd.Family) bool {
	return !n.primary && (len(n.ranges[f]) == 0 || slices.ContainsFunc(n.ranges[f], func(p netip.Prefix) bool { return p.Bits() == 0 }))
}

// Contains reports whether a local address takes NodePorts. nodeAddrs are the Node's addresses (fwd.NodeFacts.Addresses).
// With "primary" a family of which the Node has no address takes none.
func (n NodePortAddresses) Contains(a netip.Addr, nodeAddrs []netip.Addr) bool {
	f := fwd.FamilyOf(a)
	if n.primary {
		i := slices.IndexFunc(nodeAddrs, func(x netip.Addr) bool { return fwd.FamilyOf(x) == f })
		return i >= 0 && nodeAddrs[i] == a
	}
	return n.All(f) || slices.ContainsFunc(n.ranges[f], func(p netip.Prefix) bool { return p.Contains(a) })
}

// Select returns those of local that take NodePorts, in their order.
func (n NodePortAddresses) Select(local, nodeAddrs []netip.Addr) []netip.Addr {
	var selected []netip.Addr
	for _, a := range local {
		if n.Contains(a, nodeAddrs) {
			selected = append(selected, a)
		}
	}
	return selected
}
