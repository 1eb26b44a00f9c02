package conntrack

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Filter selects the stale UDP flows of one destination: those whose original destination is To and whose replies come
// from none of Keep. A flow that was never translated replies from To itself, so it is stale too.
type Filter struct {
	To netip.AddrPort
	// Keep is sorted, without duplicates, and may be empty. It is shared between Filters and never changed.
	Keep []netip.AddrPort
	// Attempts selects other flows of To in their place: attempts at a TCP connection that were never translated and that
	// nobody has answered. Keep does not count then.
	Attempts bool
}

// Input is what Plan looks at.
type Input struct {
	// Before is the table of the last time that everything was cleaned (the empty table after a start), Now the one that the
	// kernel forwards by.
	Before, Now *fwd.Table
	// Delta says which Service ports differ. With All every UDP Service port is looked at, for after a start or a failure;
	// flows to endpoints that serve stay then as well.
	Delta dataplane.Delta
	// NodeAddrs are the addresses on which this node takes NodePorts, of both families.
	NodeAddrs []netip.Addr
	// First says that nothing was cleaned yet since the start: attempts at TCP connections may be older than the rules.
	First bool
}

// Plan returns the flows to remove, sorted by kind and destination. A Service port counts when it appears, goes, gets or loses a
// destination, when an endpoint of it stops serving, and when a list of it stops or starts being empty. Endpoints that
// are merely no longer chosen (traffic policy, topology, termination) keep their flows, as connections of TCP do.
//
// The first time, attempts at TCP connections to cluster IPs are selected too. The kernel decides about translation at a
// flow's first packet: a SYN from before the rules goes nowhere, and so do its repetitions, until the client gives up.
// Cluster IPs alone: who else could answer one? A load balancer may be about to answer at its own address.
//
// kube-proxy leaves Services without endpoints and deleted ones alone (kubernetes issue 139628); here both are cleaned.
func Plan(in Input) []Filter {
	keep := map[netip.AddrPort][]netip.AddrPort{}
	for _, id := range in.ids() {
		before, now := udpPort(in.Before, id), udpPort(in.Now, id)
		if !in.Delta.All && !stale(before, now) {
			continue
		}
		for _, to := range destinations(before, in.NodeAddrs) {
			if _, ok := keep[to]; !ok {
				keep[to] = nil
			}
		}
		serving := serving(now)
		for _, to := range destinations(now, in.NodeAddrs) {
			keep[to] = union(keep[to], serving)
		}
	}
	filters := make([]Filter, 0, len(keep))
	for _, to := range slices.SortedFunc(maps.Keys(keep), netip.AddrPort.Compare) {
		filters = append(filters, Filter{To: to, Keep: keep[to]})
	}
	if in.First {
		filters = append(filters, attempts(in.Now)...)
	}
	return filters
}

// attempts selects what nobody answers at any cluster IP of TCP, sorted.
func attempts(t *fwd.Table) []Filter {
	var filters []Filter
	for _, p := range t.Ports() {
		if p.Protocol == fwd.TCP && p.ClusterIP.IsValid() {
			filters = append(filters, Filter{To: netip.AddrPortFrom(p.ClusterIP, p.Port), Attempts: true})
		}
	}
	slices.SortFunc(filters, func(a, b Filter) int { return a.To.Compare(b.To) })
	return filters
}

// ids are the Service ports to look at, sorted.
func (in Input) ids() []fwd.ID {
	if !in.Delta.All {
		return in.Delta.Ports
	}
	all := map[fwd.ID]bool{}
	for _, t := range []*fwd.Table{in.Before, in.Now} {
		for id := range t.Ports() {
			all[id] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// udpPort returns nil for a Service port that is not there or not of UDP.
func udpPort(t *fwd.Table, id fwd.ID) *fwd.Port {
	if p, ok := t.Port(id); ok && p.Protocol == fwd.UDP {
		return p
	}
	return nil
}

// stale reports whether going from before to now can leave flows behind. Nil is a Service port that is not there.
func stale(before, now *fwd.Port) bool {
	if before == nil || now == nil {
		return before != now
	}
	sameDestinations := before.Port == now.Port && before.NodePort == now.NodePort &&
		slices.Equal(before.VirtualIPs(), now.VirtualIPs())
	return !sameDestinations ||
		!subset(serving(before), serving(now)) ||
		(len(before.Cluster()) == 0) != (len(now.Cluster()) == 0) ||
		(len(before.Local()) == 0) != (len(now.Local()) == 0)
}

// destinations are what clients send to, for one Service port or for nil.
func destinations(p *fwd.Port, nodeAddrs []netip.Addr) []netip.AddrPort {
	if p == nil {
		return nil
	}
	var to []netip.AddrPort
	for _, ip := range p.VirtualIPs() {
		to = append(to, netip.AddrPortFrom(ip, p.Port))
	}
	for _, ip := range nodeAddrs {
		if p.NodePort != 0 && fwd.FamilyOf(ip) == p.Family {
			to = append(to, netip.AddrPortFrom(ip, p.NodePort))
		}
	}
	return to
}

// serving is sorted and without duplicates.
func serving(p *fwd.Port) []netip.AddrPort {
	if p == nil {
		return nil
	}
	var addrs []netip.AddrPort
	for _, b := range p.Serving() {
		addrs = append(addrs, b.Addr)
	}
	return addrs
}

// subset and union take sorted slices; union returns one.
func subset(a, b []netip.AddrPort) bool {
	for _, x := range a {
		if !contains(b, x) {
			return false
		}
	}
	return true
}

func contains(sorted []netip.AddrPort, x netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(sorted, x, netip.AddrPort.Compare)
	return found
}

func union(a, b []netip.AddrPort) []netip.AddrPort {
	if len(a) == 0 {
		return b
	}
	all := slices.Concat(a, b)
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}
