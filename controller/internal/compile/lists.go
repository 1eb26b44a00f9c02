package compile

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// candidate is one endpoint at one of its ports.
type candidate struct {
	addr netip.AddrPort
	*endpoints.Endpoint
}

// list is one list of a Service port: the backends, sorted, and whose they are. It is immutable.
type list struct {
	audience fwd.Audience
	backends []fwd.Backend
}

// candidates returns the endpoints of a Service port, sorted by address and port. eps are sorted by endpoints.Compare, so
// that of duplicates by address and port the better one comes first and stays (SEMANTICS 1.13).
func candidates(sp *fwd.ServicePort, eps []endpoints.Endpoint) []candidate {
	cs := make([]candidate, 0, len(eps))
	for i := range eps {
		e := &eps[i]
		if fwd.FamilyOf(e.Addr) != sp.Family {
			continue
		}
		for _, p := range e.At(sp.PortName.Port, sp.Protocol) {
			cs = append(cs, candidate{netip.AddrPortFrom(e.Addr, p.Port), e})
		}
	}
	slices.SortStableFunc(cs, func(a, b candidate) int { return a.addr.Compare(b.addr) })
	return slices.CompactFunc(cs, func(a, b candidate) bool { return a.addr == b.addr })
}

// inUse is the rule of SEMANTICS 2.1 (KEP-1669), for all endpoints or for those of one node: the ready ones, and if none is
// ready those that serve while they terminate.
func inUse(cs []candidate) ([]candidate, fwd.State) {
	if ready := filter(cs, func(c candidate) bool { return c.Ready }); len(ready) > 0 {
		return ready, fwd.Ready
	}
	return filter(cs, func(c candidate) bool { return c.Serving && c.Terminating }), fwd.Draining
}

// usesCluster reports whether anybody uses the cluster list: clients inside unless internal traffic is local, and under
// either external policy those who come in from outside (short-circuits, SEMANTICS 3).
func usesCluster(sp *fwd.ServicePort) bool {
	return !sp.InternalLocal || sp.NodePort != 0 || len(sp.ExternalIPs)+len(sp.LoadBalancerIPs) > 0
}

// usesLocal reports whether anybody uses the local list, healthCheckNodePort included (SEMANTICS 2.3).
func usesLocal(sp *fwd.ServicePort) bool { return sp.InternalLocal || sp.ExternalLocal }

// topology is the first half of the rule of SEMANTICS 2.2 (KEP-2433, KEP-4444, KEP-3015): hints count only if all ready
// endpoints carry them, those for nodes before those for zones. The state is that of the endpoints in use: without a ready
// one, topology is off.
//
// A node's local list and its list by node hints share one place. They are equal where every endpoint is hinted to its
// own node, which is what writers of hints do; where not, and a policy needs the local list, hints for nodes are ignored.
func topology(used []candidate, state fwd.State, local bool) fwd.Scope {
	every := func(is func(candidate) bool) bool {
		return !slices.ContainsFunc(used, func(c candidate) bool { return !is(c) })
	}
	switch {
	case state != fwd.Ready || len(used) == 0:
		return fwd.Common
	case every(func(c candidate) bool {
		return len(c.HintNodes) > 0 && (!local || len(c.HintNodes) == 1 && c.HintNodes[0] == c.Node)
	}):
		return fwd.Node
	case every(func(c candidate) bool { return len(c.HintZones) > 0 }):
		return fwd.Zone
	}
	return fwd.Common
}

// forZone is the second half for a zone: the endpoints hinted to it, if all carry such hints and one matches, else all.
func forZone(ready []candidate, zone string) []candidate {
	if slices.ContainsFunc(ready, func(c candidate) bool { return len(c.HintZones) == 0 }) {
		return ready
	}
	hinted := filter(ready, func(c candidate) bool { return slices.Contains(c.HintZones, zone) })
	if len(hinted) == 0 {
		return ready
	}
	return hinted
}

// byHintedNode groups ready endpoints by the nodes that they are hinted to; a node without any uses its zone's list.
func byHintedNode(ready []candidate) map[string][]candidate {
	nodes := map[string][]candidate{}
	for _, c := range ready {
		for _, n := range c.HintNodes {
			nodes[n] = append(nodes[n], c)
		}
	}
	return nodes
}

// byNode groups endpoints by the node that they are on.
func byNode(cs []candidate) map[string][]candidate {
	nodes := map[string][]candidate{}
	for _, c := range cs {
		nodes[c.Node] = append(nodes[c.Node], c)
	}
	return nodes
}

// withKept is the rule of SEMANTICS 2.9 for UDP: flows to an endpoint live as long as it serves, so every node knows every
// serving endpoint, those in use as what they are and the others as Kept.
func withKept(used []fwd.Backend, cs []candidate) []fwd.Backend {
	all := slices.Clip(used)
	for _, c := range cs {
		kept := fwd.Backend{Addr: c.addr, State: fwd.Kept}
		if _, found := slices.BinarySearchFunc(used, kept, compareBackends); c.Serving && !found {
			all = append(all, kept)
		}
	}
	slices.SortFunc(all, compareBackends)
	return all
}

// distribute completes a granted Service port (ClusterScope and Usable) and returns its lists, sorted by audience, none
// empty. zones are all zones, sorted.
func distribute(sp fwd.ServicePort, cs []candidate, zones []string) (fwd.ServicePort, []list) {
	used, state := inUse(cs)
	sp.Usable = len(used) > 0
	all := backends(used, state)
	var common []fwd.Backend
	var lists []list
	if usesCluster(&sp) {
		sp.ClusterScope = topology(used, state, usesLocal(&sp))
		if sp.ClusterScope == fwd.Common {
			common = all
		} else {
			lists = zoneLists(used, all, zones)
		}
	}
	if sp.Protocol == fwd.UDP {
		common = withKept(common, cs)
	}
	if len(common) > 0 {
		lists = slices.Insert(lists, 0, list{fwd.Audience{Scope: fwd.Common}, common})
	}
	switch {
	case usesLocal(&sp):
		return sp, append(lists, nodeLists(byNode(cs))...)
	case sp.ClusterScope == fwd.Node:
		return sp, append(lists, nodeLists(byHintedNode(used))...)
	}
	return sp, lists
}

// zoneLists materialises the list of every zone; zones that use all endpoints share one.
func zoneLists(ready []candidate, all []fwd.Backend, zones []string) []list {
	lists := make([]list, 0, len(zones)+2)
	for _, zone := range zones {
		l := list{fwd.Audience{Scope: fwd.Zone, Name: zone}, all}
		if hinted := forZone(ready, zone); len(hinted) < len(ready) {
			l.backends = backends(hinted, fwd.Ready)
		}
		lists = append(lists, l)
	}
	return lists
}

// nodeLists applies the rule of use to each node's endpoints. An endpoint on no node is local to none.
func nodeLists(nodes map[string][]candidate) []list {
	var lists []list
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if l := backends(inUse(nodes[name])); len(l) > 0 && name != "" {
			lists = append(lists, list{fwd.Audience{Scope: fwd.Node, Name: name}, l})
		}
	}
	return lists
}

func backends(cs []candidate, state fwd.State) []fwd.Backend {
	bs := make([]fwd.Backend, len(cs))
	for i, c := range cs {
		bs[i] = fwd.Backend{Addr: c.addr, State: state}
	}
	return bs
}

func compareBackends(a, b fwd.Backend) int { return a.Addr.Compare(b.Addr) }

// filter returns the candidates that are so; all of them without a copy.
func filter(cs []candidate, is func(candidate) bool) []candidate {
	i := slices.IndexFunc(cs, func(c candidate) bool { return !is(c) })
	if i < 0 {
		return cs
	}
	some := slices.Clone(cs[:i])
	for _, c := range cs[i:] {
		if is(c) {
			some = append(some, c)
		}
	}
	return some
}
