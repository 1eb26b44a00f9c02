package compile

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// node is what tables need of a Node.
type node struct {
	facts fwd.Row
	zone  string
}

func readNode(n *corev1.Node) *node {
	draining := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == TaintAutoscaler })
	return &node{
		facts: fwd.EncodeNode(fwd.NodeFacts{
			Deleting: n.DeletionTimestamp != nil, AutoscalerDraining: draining,
			PodCIDRs: podCIDRs(n), Addresses: internalIPs(n),
		}),
		zone: n.Labels[corev1.LabelTopologyZone],
	}
}

// podCIDRs are sorted; what cannot be read is left out.
func podCIDRs(n *corev1.Node) []netip.Prefix {
	texts := n.Spec.PodCIDRs
	if len(texts) == 0 {
		texts = []string{n.Spec.PodCIDR}
	}
	var ps []netip.Prefix
	for _, text := range texts {
		if p, err := endpoints.ParsePrefix(text); err == nil {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, netip.Prefix.Compare)
	return slices.Compact(ps)
}

// internalIPs are in the order of the status, where the first of each family is the primary one.
func internalIPs(n *corev1.Node) []netip.Addr {
	var ips []netip.Addr
	for _, a := range n.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		ip, err := endpoints.ParseAddr(a.Address)
		if err == nil && fwd.ValidAddr(ip, fwd.FamilyOf(ip)) == nil && !slices.Contains(ips, ip) {
			ips = append(ips, ip)
		}
	}
	return ips
}

// zones counts the nodes of each zone. The zone "" is always there, so that an agent whose Node is not known, or was just
// deleted, still has lists to use.
type zones map[string]int

// move takes a node from one zone to another and reports whether a zone came or went. known and stays say whether the
// node was, and is, in the cluster.
func (z zones) move(was, is *node) (changed bool) {
	if was != nil && is != nil && was.zone == is.zone {
		return false
	}
	if was != nil {
		z[was.zone]--
		if z[was.zone] == 0 {
			delete(z, was.zone)
			changed = true
		}
	}
	if is != nil {
		z[is.zone]++
		changed = changed || z[is.zone] == 1
	}
	return changed
}
