package oracle

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/oracle/iptrace"
)

// Difference is one thing that Fairlead means to do in another way than kube-proxy. docs/differences.md has a section of
// that name with the reason.
type Difference struct {
	// Name is the section's.
	Name string
	// Edit takes out of a cluster what Fairlead leaves out: Fairlead, shown the cluster as it is, must do what kube-proxy
	// does with the edited one. nil changes nothing.
	Edit func(*Cluster)
	// Explains reports whether a mismatch is this difference and no more than that. nil explains none.
	Explains func(*Cluster, Mismatch) bool
}

// Differences lists all of them, in the order in which their edits apply. A mismatch that none accounts for is a bug on one
// of the two sides.
func Differences() []Difference {
	return []Difference{
		{Name: "Endpoints that reach into the node are refused", Edit: refuseUnfit},
		{Name: "Endpoints that are a virtual IP are refused", Edit: refuseVirtual},
		{Name: "Hints for foreign nodes do not mix with a policy Local", Edit: ignoreForeignHints},
		{Name: "External IPs have to be allowed", Edit: forbidExternalIPs},
		{Name: "A virtual IP that is claimed twice has one owner", Edit: settleClaims},
		{Name: "Node ports do not answer at loopback addresses", Edit: func(c *Cluster) { c.Config.LocalhostNodePorts = false }},
		{Name: "Node ports refuse only where they would answer", Explains: refusedElsewhere},
	}
}

// Edited is the cluster as kube-proxy has to see it for its rules to be ours.
func Edited(c *Cluster, differences []Difference) *Cluster {
	e := c.Clone()
	for _, d := range differences {
		if d.Edit != nil {
			d.Edit(e)
		}
	}
	return e
}

// Unexplained returns the mismatches that no Difference explains.
func Unexplained(c *Cluster, all []Mismatch, differences []Difference) []Mismatch {
	return slices.DeleteFunc(slices.Clone(all), func(m Mismatch) bool {
		return slices.ContainsFunc(differences, func(d Difference) bool { return d.Explains != nil && d.Explains(c, m) })
	})
}

func forbidExternalIPs(c *Cluster) {
	for i := range c.Services {
		spec := &c.Services[i].Spec
		spec.ExternalIPs = slices.DeleteFunc(spec.ExternalIPs, func(ip string) bool {
			a, err := netip.ParseAddr(ip)
			return err == nil && !slices.ContainsFunc(c.Config.AllowedExternalIPs, func(r string) bool {
				return netip.MustParsePrefix(r).Contains(a)
			})
		})
	}
}

// unfit reports whether the text is an address that no endpoint may have.
func unfit(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && fwd.ValidAddr(a, fwd.FamilyOf(a)) != nil
}

func refuseUnfit(c *Cluster) {
	for i := range c.EndpointSlices {
		s := &c.EndpointSlices[i]
		s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return unfit(e.Addresses[0]) })
	}
}

func refuseVirtual(c *Cluster) {
	owners := owners(c)
	for i := range c.EndpointSlices {
		s := &c.EndpointSlices[i]
		s.Endpoints = slices.DeleteFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return virtual(owners, s, e) })
	}
}

// virtual reports whether an endpoint is, at one of its slice's ports, what some Service claims.
func virtual(owners map[claim][]owner, s *discoveryv1.EndpointSlice, e discoveryv1.Endpoint) bool {
	a, err := netip.ParseAddr(e.Addresses[0])
	return err == nil && slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool {
		protocol, err := fwd.ParseProtocol(string(*p.Protocol))
		return err == nil && p.Port != nil && len(owners[claim{a, protocol, uint16(*p.Port)}]) > 0
	})
}

// refusedElsewhere: kube-proxy refuses connections to a node port without endpoints at every address of the node, even at
// those where the port would not be forwarded if there were endpoints.
func refusedElsewhere(c *Cluster, m Mismatch) bool {
	p := m.Probe.Packet
	for o := range m.Theirs {
		if o.Fate != iptrace.Rejected && o.Fate != iptrace.Dropped {
			return false
		}
	}
	untouched := Outcomes{iptrace.Outcome{Fate: iptrace.Passed}: 1}
	isNodePort := slices.ContainsFunc(c.Services, func(s corev1.Service) bool {
		return slices.ContainsFunc(s.Spec.Ports, func(sp corev1.ServicePort) bool { return uint16(sp.NodePort) == p.DPort })
	})
	return isNodePort && m.Ours.equal(untouched) && m.Probe.Host.Owns(p.Dst) && !answersNodePorts(c, p.Dst)
}

// answersNodePorts reports whether node ports are forwarded at an address of the node.
func answersNodePorts(c *Cluster, a netip.Addr) bool {
	own := slices.DeleteFunc(slices.Clone(c.Config.NodePortAddresses), func(r string) bool {
		return netip.MustParsePrefix(r).Addr().Is4() != a.Is4()
	})
	return !a.IsLoopback() && (len(own) == 0 || slices.ContainsFunc(own, func(r string) bool { return netip.MustParsePrefix(r).Contains(a) }))
}
