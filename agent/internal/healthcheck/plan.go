package healthcheck

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Port is one healthCheckNodePort: the Service that owns it, and how many endpoints of it are on this node.
type Port struct {
	Namespace, Name string
	NodePort        uint16
	// LocalEndpoints counts, by family, the distinct addresses of the Service's ready endpoints on this node, over all
	// ports of the Service.
	LocalEndpoints [2]int
}

// Index finds the healthCheckNodePorts of a table without walking over all Service ports for every change. The zero value
// is the index of the empty table. It is not safe for concurrent use.
type Index struct {
	// ports are the Service ports that have a healthCheckNodePort, as of the last Update.
	ports map[fwd.ID]*fwd.Port
}

// Update takes the table and what differs from the one of the last Update (delta.All: anything), and returns the
// healthCheckNodePorts, sorted by Service. Of two Services with one port, which the API server does not allow, the first
// keeps it.
func (x *Index) Update(now *fwd.Table, delta dataplane.Delta) []Port {
	if x.ports == nil || delta.All {
		x.ports = map[fwd.ID]*fwd.Port{}
		for id, p := range now.Ports() {
			x.set(id, p)
		}
	}
	for _, id := range delta.Ports {
		p, _ := now.Port(id)
		x.set(id, p)
	}
	return x.list()
}

func (x *Index) set(id fwd.ID, p *fwd.Port) {
	if p == nil || p.HealthCheckNodePort == 0 {
		delete(x.ports, id)
		return
	}
	x.ports[id] = p
}

func (x *Index) list() []Port {
	type key struct {
		namespace, name string
		nodePort        uint16
	}
	local := map[key]map[netip.Addr]bool{}
	for _, p := range x.ports {
		k := key{p.Namespace, p.Name, p.HealthCheckNodePort}
		if local[k] == nil {
			local[k] = map[netip.Addr]bool{}
		}
		for _, b := range p.List(fwd.Node) {
			if b.State == fwd.Ready {
				local[k][b.Addr.Addr()] = true
			}
		}
	}
	var ports []Port
	for k, addrs := range local {
		p := Port{Namespace: k.namespace, Name: k.name, NodePort: k.nodePort}
		for a := range addrs {
			p.LocalEndpoints[fwd.FamilyOf(a)]++
		}
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b Port) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), cmp.Compare(a.NodePort, b.NodePort))
	})
	return withoutRepeatedNodePorts(ports)
}

func withoutRepeatedNodePorts(ports []Port) []Port {
	taken := map[uint16]bool{}
	return slices.DeleteFunc(ports, func(p Port) bool {
		repeated := taken[p.NodePort]
		taken[p.NodePort] = true
		return repeated
	})
}
