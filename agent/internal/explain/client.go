package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Client is what a node takes a client for.
type Client string

// The clients that rules tell apart.
const (
	Pod      Client = "a Pod of this node"
	ThisNode Client = "this node"
	Others   Client = "neither a Pod of this node nor the node"
)

// podRanges are the addresses of Pods, where they are told by those.
func (h Host) podRanges(t *fwd.Table) []netip.Prefix {
	switch h.DetectLocal {
	case dataplane.LocalClusterCIDR:
		return h.ClusterCIDRs
	case dataplane.LocalNodeCIDR:
		return t.Node().PodCIDRs
	case dataplane.LocalNone, dataplane.LocalBridge, dataplane.LocalPrefix:
	}
	return nil
}

// tells reports whether Pods are told from others in the packet's family.
func (h Host) tells(t *fwd.Table, p Packet) bool {
	switch h.DetectLocal {
	case dataplane.LocalNone:
		return false
	case dataplane.LocalBridge, dataplane.LocalPrefix:
		return true
	case dataplane.LocalClusterCIDR, dataplane.LocalNodeCIDR:
	}
	return slices.ContainsFunc(h.podRanges(t), func(r netip.Prefix) bool { return fwd.FamilyOf(r.Addr()) == fwd.FamilyOf(p.From) })
}

// client tells a client as the rules do: Pods go first.
func (h Host) client(t *fwd.Table, p Packet) Client {
	isLocal := slices.Contains(h.Local, p.From) || p.From.IsLoopback()
	byDevice := h.DetectLocal == dataplane.LocalBridge && p.Device == h.Interface ||
		h.DetectLocal == dataplane.LocalPrefix && strings.HasPrefix(p.Device, h.Interface)
	switch {
	case within(h.podRanges(t), p.From), byDevice && p.Device != "" && !isLocal:
		return Pod
	case isLocal:
		return ThisNode
	}
	return Others
}

func (h Host) whyClient(c Client, p Packet) string {
	if c == ThisNode {
		return fmt.Sprintf("%v is an address of this node", p.From)
	}
	not := map[bool]string{true: "", false: "not "}[c == Pod]
	switch h.DetectLocal {
	case dataplane.LocalClusterCIDR:
		return fmt.Sprintf("%v is %sin --cluster-cidr", p.From, not)
	case dataplane.LocalNodeCIDR:
		return fmt.Sprintf("%v is %sin the Pod CIDRs of this node", p.From, not)
	case dataplane.LocalBridge, dataplane.LocalPrefix:
		return fmt.Sprintf("%v comes in by device %q, which is %sone of Pods (%s)", p.From, p.Device, not, h.Interface)
	case dataplane.LocalNone:
	}
	return fmt.Sprintf("%v is no address of this node, and nothing tells Pods from others", p.From)
}
