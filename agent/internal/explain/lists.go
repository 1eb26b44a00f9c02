package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// endpointsOf says of each backend that the node knows for a Service port whether the list in use has it, and why.
func endpointsOf(port *fwd.Port, list []fwd.Backend, name string) []Endpoint {
	used := func(a netip.AddrPort) (fwd.Backend, bool) {
		i := slices.IndexFunc(list, func(b fwd.Backend) bool { return b.Addr == a })
		if i < 0 {
			return fwd.Backend{}, false
		}
		return list[i], true
	}
	var all []Endpoint
	for _, b := range port.Serving() {
		e := Endpoint{Address: b.Addr}
		if in, ok := used(b.Addr); ok {
			e.Used, e.Why = true, whyUsed(port, in, name)
		} else {
			e.Why = whyNot(port, b.Addr, name)
		}
		all = append(all, e)
	}
	return all
}

func whyUsed(port *fwd.Port, b fwd.Backend, list string) string {
	state := "ready"
	if b.State == fwd.Draining {
		state = "terminating, and used because none is ready"
	}
	if list == "local" {
		return state + ", on this node"
	}
	switch port.ClusterScope {
	case fwd.Zone:
		return state + ", in the list of this node's zone"
	case fwd.Node:
		if _, own := find(port.List(fwd.Node), b.Addr); own && ready(port.List(fwd.Node)) {
			return state + ", hinted to this node"
		}
		return state + ", in the list of this node's zone: no ready endpoint is hinted to the node"
	case fwd.Common:
	}
	return state
}

// whyNot looks for the backend in the lists that are not in use.
func whyNot(port *fwd.Port, at netip.AddrPort, list string) string {
	in := map[fwd.Scope]fwd.State{}
	for _, s := range fwd.Scopes() {
		if b, ok := find(port.List(s), at); ok {
			in[s] = b.State
		}
	}
	common, isCommon := in[fwd.Common]
	_, isNode := in[fwd.Node]
	switch {
	case list == "local" && !isNode:
		return "not on this node, or not to be used here"
	case isCommon && common == fwd.Kept:
		return "not in use here: it serves, so that UDP flows to it live on"
	case isNode:
		return "on this node, but not in the list for all clients"
	}
	return fmt.Sprintf("hints lead this node elsewhere: it uses the list of its %v", port.ClusterScope)
}

func find(list []fwd.Backend, at netip.AddrPort) (fwd.Backend, bool) {
	i := slices.IndexFunc(list, func(b fwd.Backend) bool { return b.Addr == at })
	if i < 0 {
		return fwd.Backend{}, false
	}
	return list[i], true
}

func ready(list []fwd.Backend) bool {
	return slices.ContainsFunc(list, func(b fwd.Backend) bool { return b.State == fwd.Ready })
}
