package oracle

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Difference is one thing that Fairlead means to do in another way than kube-proxy. docs/differences.md has a section of
// that name with the reason.
type Difference struct {
	// Name is the section's.
	Name string
	// Edit takes out of a cluster what Fairlead leaves out: Fairlead, shown the cluster as it is, must do what kube-proxy
	// does with the edited one. nil changes nothing.
	Edit func(*Cluster)
	// Expects turns what becomes of a packet in kube-proxy's rules into what must become of it in ours; where this is not
	// about the packet, that is the same. nil changes nothing.
	Expects func(facts, Probe, Outcomes) Outcomes
	// Mode is the only one that has the difference; "" is all.
	Mode Mode
}

// Differences lists all of them, in the order in which they apply. A mismatch that none accounts for is a bug on one of the
// two sides.
func Differences() []Difference {
	return []Difference{
		{Name: "Endpoints that reach into the node are refused", Edit: refuseUnfit},
		{Name: "Virtual IPs that reach into the node are refused", Edit: refuseUnfitVirtual},
		{Name: "Source ranges that cannot be read let nobody in", Edit: closeUnreadable},
		{Name: "A Service has at most 1,000 ports", Edit: cutPorts},
		{Name: "Endpoints that are a virtual IP are refused", Edit: refuseVirtual},
		{Name: "Hints for foreign nodes do not mix with a policy Local", Edit: ignoreForeignHints},
		{Name: "External IPs have to be allowed", Edit: forbidExternalIPs},
		{Name: "A virtual IP that is claimed twice has one owner", Edit: settleClaims},
		{Name: "Node ports do not answer at loopback addresses", Edit: func(c *Cluster) { c.Config.LocalhostNodePorts = false }},
		{Name: "Node ports refuse only where they would answer", Expects: refusedElsewhere},
		{Name: "nftables mode: node ports answer at the node's primary addresses", Mode: NFTables, Expects: notPrimary},
		{Name: "nftables mode: nothing is accepted on behalf of other tables", Mode: NFTables, Expects: acceptedByNobody},
		{Name: "nftables mode: a cluster IP refuses what is no Service port", Mode: NFTables, Expects: undefinedPort},
		{Name: "nftables mode: what is for a cluster IP of nobody is dropped", Mode: NFTables, Expects: clusterIPOfNobody},
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
