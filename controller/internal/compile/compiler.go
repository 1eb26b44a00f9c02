package compile

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Compiler holds the present inputs and the rows that they gave. It does no I/O and is not safe for concurrent use. Set and
// Delete calls note an input, the last one for an object counts; Flush computes.
type Compiler struct {
	cfg Config
	// idOf is fwd.PortName.ID; tests make IDs meet.
	idOf func(fwd.PortName) fwd.ID

	services map[serviceName]*service
	nodes    map[string]*node
	zones    zones
	cluster  fwd.Row // as emitted

	// registry knows who claims what; located which Services have an endpoint at an address, so that a virtual IP that
	// comes or goes finds the endpoints that equal it; topological are the Services whose lists depend on the zones.
	registry    registry
	located     map[netip.Addr][]*service
	topological map[*service]struct{}

	// What Flush has not seen yet; nil deletes.
	pendingServices map[serviceName]*input
	pendingNodes    map[string]*node
}

// serviceName is a Service's key.
type serviceName struct{ namespace, name string }

func (n serviceName) compare(o serviceName) int {
	if c := strings.Compare(n.namespace, o.namespace); c != 0 {
		return c
	}
	return strings.Compare(n.name, o.name)
}

// input is what SetService was given, as far as it is used.
type input struct {
	age      age
	ports    []fwd.ServicePort
	problems []endpoints.Problem
	eps      []endpoints.Endpoint
}

// service is a Service as of the last Flush.
type service struct {
	name serviceName
	input
	// live are sorted by name; dropped are gone, but their rows may still be out.
	live, dropped []*port
	// reported are the problems that the last Flush found.
	reported map[endpoints.Problem]struct{}
}

// port is one ServicePort: what it asks for, its claims, and the rows that are out. Its identity is that of a claimant.
type port struct {
	of     *service
	id     fwd.ID
	want   fwd.ServicePort
	claims []claim
	// row is the zero Row where none is out.
	row   fwd.Row
	lists []list
}

// New returns a Compiler without inputs.
func New(cfg Config) *Compiler {
	return &Compiler{
		cfg: cfg, idOf: fwd.PortName.ID,
		services: map[serviceName]*service{}, nodes: map[string]*node{}, zones: zones{"": 1},
		registry: registry{}, located: map[netip.Addr][]*service{}, topological: map[*service]struct{}{},
		pendingServices: map[serviceName]*input{}, pendingNodes: map[string]*node{},
	}
}

// SetService takes a Service and all of its endpoints, in place of those it had. svc is read and not kept; eps are kept and
// must not change. Every Service may be given: those that are not forwarded (headless, ExternalName, of another proxy)
// have no rows.
func (c *Compiler) SetService(svc *corev1.Service, eps []endpoints.Endpoint) {
	in := &input{age: age{svc.CreationTimestamp.Unix(), svc.UID}, eps: eps}
	in.ports, in.problems = c.cfg.read(svc)
	if len(in.ports) == 0 {
		in.eps = nil
	}
	if !slices.IsSortedFunc(in.eps, endpoints.Compare) {
		in.eps = slices.SortedFunc(slices.Values(in.eps), endpoints.Compare)
	}
	c.pendingServices[serviceName{svc.Namespace, svc.Name}] = in
}

// DeleteService takes a Service and its endpoints away. It need not exist.
func (c *Compiler) DeleteService(namespace, name string) {
	c.pendingServices[serviceName{namespace, name}] = nil
}

// SetNode takes a Node, which is read and not kept. Endpoints keep the zone that they were given: whoever derives them
// does so again when a Node's zone changes.
func (c *Compiler) SetNode(n *corev1.Node) { c.pendingNodes[n.Name] = readNode(n) }

// DeleteNode takes a Node away. It need not exist. Lists of endpoints that are still on it stay.
func (c *Compiler) DeleteNode(name string) { c.pendingNodes[name] = nil }

// SetServiceCIDRs replaces Config.ServiceCIDRs, in any order.
func (c *Compiler) SetServiceCIDRs(cidrs []netip.Prefix) { c.cfg.ServiceCIDRs = slices.Clone(cidrs) }

// Flush computes what the inputs since the last Flush change.
func (c *Compiler) Flush() Output {
	out := edits{}
	c.flushCluster(out)
	moved, zonesChanged := c.flushNodes(out)
	dirty := c.flushServices()
	if zonesChanged {
		maps.Copy(dirty, c.topological)
	}
	zones := slices.Sorted(maps.Keys(c.zones))
	var problems []Problem
	for _, s := range slices.SortedFunc(maps.Keys(dirty), func(a, b *service) int { return a.name.compare(b.name) }) {
		problems = append(problems, c.compile(s, zones, out)...)
	}
	return Output{Updates: out.updates(), Zones: moved, Problems: problems}
}

func (c *Compiler) flushCluster(out edits) {
	cidrs := slices.SortedFunc(slices.Values(c.cfg.ServiceCIDRs), netip.Prefix.Compare)
	var row fwd.Row
	if len(cidrs) > 0 {
		row = fwd.EncodeCluster(fwd.ClusterFacts{ServiceCIDRs: slices.Compact(cidrs)})
	}
	out.replace(fwd.Audience{Scope: fwd.Common}, c.cluster, row)
	c.cluster = row
}

// flushNodes takes the noted Nodes over and says which are in another zone now, and whether a zone came or went.
func (c *Compiler) flushNodes(out edits) (moved []NodeZone, zonesChanged bool) {
	for _, name := range slices.Sorted(maps.Keys(c.pendingNodes)) {
		was, is := c.nodes[name], c.pendingNodes[name]
		var old, row fwd.Row
		if was != nil {
			old = was.facts
		}
		if is != nil {
			row = is.facts
			c.nodes[name] = is
		} else {
			delete(c.nodes, name)
		}
		out.replace(fwd.Audience{Scope: fwd.Node, Name: name}, old, row)
		switch {
		case is != nil && (was == nil || was.zone != is.zone):
			moved = append(moved, NodeZone{Node: name, Zone: is.zone})
		case is == nil && was != nil:
			moved = append(moved, NodeZone{Node: name, Gone: true})
		}
		if c.zones.move(was, is) {
			zonesChanged = true
		}
	}
	c.pendingNodes = map[string]*node{}
	return moved, zonesChanged
}
