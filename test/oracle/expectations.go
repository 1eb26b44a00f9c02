package oracle

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/oracle/journey"
)

// facts is what Differences need to know of a cluster, and the mode of ours that is compared.
type facts struct {
	cluster *Cluster
	mode    Mode
	owners  map[claim][]owner
	// clusterIPs are those of the Services that we forward, nodePorts those of all.
	clusterIPs map[netip.Addr]bool
	nodePorts  map[uint16]bool
	// primary are the first addresses of each family that the Node object has.
	primary map[netip.Addr]bool
}

func newFacts(c *Cluster) facts {
	f := facts{cluster: c, owners: owners(c), clusterIPs: map[netip.Addr]bool{}, nodePorts: map[uint16]bool{}, primary: map[netip.Addr]bool{}}
	for i := range c.Services {
		s := &c.Services[i]
		for _, p := range s.Spec.Ports {
			f.nodePorts[uint16(p.NodePort)] = p.NodePort != 0
		}
		if _, other := s.Labels[labelProxyName]; other {
			continue
		}
		for _, family := range fwd.Families() {
			for _, a := range addrsOf(family, s.Spec.ClusterIPs...) {
				f.clusterIPs[a] = true
			}
		}
	}
	var texts []string
	for _, a := range c.Node.Status.Addresses {
		texts = append(texts, a.Address)
	}
	for _, family := range fwd.Families() {
		for _, a := range addrsOf(family, texts...)[:1] {
			f.primary[a] = true
		}
	}
	return f
}

// expected is what must become of a packet in ours.
func (f facts) expected(differences []Difference, p Probe, theirs Outcomes) Outcomes {
	for _, d := range differences {
		if d.Expects != nil && (d.Mode == "" || d.Mode == f.mode) {
			theirs = d.Expects(f, p, theirs)
		}
	}
	return theirs
}

// certain is one fate for sure, without a translation.
func certain(fate journey.Fate) Outcomes { return Outcomes{journey.Outcome{Fate: fate}: 1} }

// isNodePort reports whether a packet is for a node port at an address of the node.
func (f facts) isNodePort(p Probe) bool {
	return f.nodePorts[p.Packet.DPort] && p.Host.Owns(p.Packet.Dst)
}

// answersNodePorts reports whether node ports are forwarded at an address of the node.
func (f facts) answersNodePorts(a netip.Addr) bool {
	own := slices.DeleteFunc(slices.Clone(f.cluster.Config.NodePortAddresses), func(r string) bool {
		return netip.MustParsePrefix(r).Addr().Is4() != a.Is4()
	})
	switch {
	case a.IsLoopback():
		return false
	case len(own) == 0:
		return f.mode != NFTables || f.primary[a]
	}
	return slices.ContainsFunc(own, func(r string) bool { return netip.MustParsePrefix(r).Contains(a) })
}

// refusedElsewhere: kube-proxy refuses connections to a node port without endpoints at every address of the node, even at
// those where the port would not be forwarded if there were endpoints.
func refusedElsewhere(f facts, p Probe, theirs Outcomes) Outcomes {
	for o := range theirs {
		if o.Fate != journey.Rejected && o.Fate != journey.Dropped {
			return theirs
		}
	}
	if f.isNodePort(p) && !f.answersNodePorts(p.Packet.Dst) {
		return certain(journey.Passed)
	}
	return theirs
}

// notPrimary: without --nodeport-addresses, our node ports leave the node's other addresses alone.
func notPrimary(f facts, p Probe, theirs Outcomes) Outcomes {
	if f.isNodePort(p) && !p.Packet.Dst.IsLoopback() && !f.answersNodePorts(p.Packet.Dst) {
		return certain(journey.Passed)
	}
	return theirs
}

// acceptedByNobody: kube-proxy's rules accept in the filter table what they have marked or translated and ports of health
// checks, and drop there what connection tracking does not understand; ours have no such table.
func acceptedByNobody(_ facts, p Probe, theirs Outcomes) Outcomes {
	if p.Packet.State == journey.Invalid {
		return certain(journey.Passed)
	}
	expected := Outcomes{}
	for o, probability := range theirs {
		if o.Fate == journey.Accepted {
			o.Fate = journey.Passed
		}
		expected[o] += probability
	}
	return expected
}

// undefinedPort: what is for a cluster IP of ours and for no Service port is refused instead of sent on.
func undefinedPort(f facts, p Probe, theirs Outcomes) Outcomes {
	to := claim{p.Packet.Dst, p.Packet.Protocol, p.Packet.DPort}
	if f.clusterIPs[to.addr] && len(f.owners[to]) == 0 && theirs.equal(certain(journey.Passed)) {
		return certain(journey.Rejected)
	}
	return theirs
}

// clusterIPOfNobody: what is for an address of the Service ranges that we know no Service of is dropped.
func clusterIPOfNobody(f facts, p Probe, theirs Outcomes) Outcomes {
	dst := p.Packet.Dst
	inRange := slices.ContainsFunc(f.cluster.Config.ServiceCIDRs, func(r string) bool { return netip.MustParsePrefix(r).Contains(dst) })
	if inRange && !f.clusterIPs[dst] && theirs.equal(certain(journey.Passed)) {
		return certain(journey.Dropped)
	}
	return theirs
}
