package fwd

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// ServicePort is what a node forwards for one port of one Service in one family. It is a value: slices are sorted, free of
// duplicates, and never changed after the ServicePort has been handed on. All addresses are of Family.
type ServicePort struct {
	PortName

	// ClusterIP is the virtual IP inside the cluster.
	ClusterIP netip.Addr
	// ExternalIPs and LoadBalancerIPs are further virtual IPs. No address is in two of the three fields.
	ExternalIPs, LoadBalancerIPs []netip.Addr
	// Port is the port at all virtual IPs, never 0. NodePort and HealthCheckNodePort are 0 where there is none.
	Port, NodePort, HealthCheckNodePort uint16
	// InternalLocal: traffic to ClusterIP uses the local list. ExternalLocal: traffic to node port, external and
	// load-balancer IPs does, with the short-circuits of local clients.
	InternalLocal, ExternalLocal bool
	// AffinitySeconds is the time-out of ClientIP session affinity; 0 is no affinity.
	AffinitySeconds uint32
	// SourceRanges filter clients of LoadBalancerIPs; empty is no filter.
	SourceRanges []netip.Prefix
	// Scheduler is the IPVS scheduler asked for; "" is the agent's default.
	Scheduler string
	// ClusterScope names the part that holds the cluster list; see Port.Cluster.
	ClusterScope Scope
	// Usable is true when some node could use some endpoint. An empty list is a REJECT without, a DROP with it.
	Usable bool
}

// State says what a backend is there for.
type State uint8

// The states; the numbers are those of fairlead.v1.Backend.State.
const (
	Ready    State = iota // in use
	Draining              // serving and terminating, in use because no endpoint is ready
	Kept                  // serving, not in use: established UDP flows to it are left alone
)

// States lists all of them.
func States() []State { return []State{Ready, Draining, Kept} }

// String returns "ready", "draining" or "kept".
func (s State) String() string {
	switch s {
	case Ready:
		return "ready"
	case Draining:
		return "draining"
	case Kept:
		return "kept"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// Backend is one endpoint in a list.
type Backend struct {
	Addr  netip.AddrPort
	State State
}

// NodeFacts is what an agent needs to know of its own Node.
type NodeFacts struct {
	// Deleting: the Node has a deletion time stamp. AutoscalerDraining: it has the taint ToBeDeletedByClusterAutoscaler.
	Deleting, AutoscalerDraining bool
	// PodCIDRs of the Node's spec, sorted.
	PodCIDRs []netip.Prefix
	// Addresses are the Node's InternalIPs in the order of its status; the first of each family is the primary one.
	Addresses []netip.Addr
}

// ClusterFacts is what an agent needs to know of the cluster.
type ClusterFacts struct {
	// ServiceCIDRs are the ranges that cluster IPs are taken from, sorted.
	ServiceCIDRs []netip.Prefix
}

// VirtualIPs returns all virtual IPs in the order cluster, external, load balancer.
func (p *ServicePort) VirtualIPs() []netip.Addr {
	ips := make([]netip.Addr, 0, 1+len(p.ExternalIPs)+len(p.LoadBalancerIPs))
	if p.ClusterIP.IsValid() {
		ips = append(ips, p.ClusterIP)
	}
	return append(append(ips, p.ExternalIPs...), p.LoadBalancerIPs...)
}

// Validate says what makes a ServicePort unfit to program: a missing name, an address of the other family or of a kind
// that is never a virtual IP, port 0. The error names the field.
func (p *ServicePort) Validate() error {
	switch {
	case p.Namespace == "" || p.Name == "":
		return fmt.Errorf("service port %v: namespace and name must not be empty", p.PortName)
	case p.Protocol.IANA() == 0:
		return fmt.Errorf("service port %v: protocol: want TCP, UDP or SCTP", p.PortName)
	case p.Port == 0:
		return fmt.Errorf("service port %v: port: must not be 0", p.PortName)
	case p.ClusterScope >= numScopes:
		return fmt.Errorf("service port %v: cluster scope: unknown value %d", p.PortName, p.ClusterScope)
	}
	for _, ip := range p.VirtualIPs() {
		if err := ValidAddr(ip, p.Family); err != nil {
			return fmt.Errorf("service port %v: virtual IP: %w", p.PortName, err)
		}
	}
	for _, r := range p.SourceRanges {
		if !r.IsValid() || FamilyOf(r.Addr()) != p.Family || r.Masked() != r {
			return fmt.Errorf("service port %v: source range %v: want a masked prefix of %v", p.PortName, r, p.Family)
		}
	}
	return nil
}

// Validate says what makes a Backend unfit to be one of a ServicePort of family f.
func (b Backend) Validate(f Family) error {
	if b.Addr.Port() == 0 {
		return fmt.Errorf("backend %v: port must not be 0", b.Addr)
	}
	if err := ValidAddr(b.Addr.Addr(), f); err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	return nil
}

// ValidAddr reports whether a may be a virtual IP or a backend of family f: not loopback, link-local, multicast or
// unspecified, which would reach into the node itself (CVE-2020-8558 and the rules of EndpointSlice validation).
func ValidAddr(a netip.Addr, f Family) error {
	switch {
	case !a.IsValid():
		return fmt.Errorf("address is missing")
	case a.Zone() != "" || a.Is4In6():
		return fmt.Errorf("address %v: want a plain %v address", a, f)
	case FamilyOf(a) != f:
		return fmt.Errorf("address %v: want %v", a, f)
	case a.IsLoopback():
		return fmt.Errorf("address %v: is loopback", a)
	case a.IsUnspecified():
		return fmt.Errorf("address %v: is unspecified", a)
	case a.IsMulticast():
		return fmt.Errorf("address %v: is multicast", a)
	case a.IsLinkLocalUnicast():
		return fmt.Errorf("address %v: is link-local", a)
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("address %v: is the broadcast address", a)
	}
	return nil
}

// Port is a ServicePort with the lists that a node holds for it. It is immutable.
type Port struct {
	ServicePort
	lists [numScopes][]Backend
	// held are backends that a table refuses, see frontends.go; they come back when the frontend goes. Nil is none, which
	// nearly all Service ports have.
	held *[numScopes][]Backend
}

// NewPort bundles a ServicePort with its lists, for tests and offline tools; lists are copied and sorted.
func NewPort(p ServicePort, lists map[Scope][]Backend) *Port {
	port := &Port{ServicePort: p}
	for _, s := range Scopes() {
		port.lists[s] = slices.SortedFunc(slices.Values(lists[s]), compareBackends)
	}
	return port
}

// List returns the list of one part: sorted by address and port, not to be changed, backends of all states.
func (p *Port) List(s Scope) []Backend { return p.lists[s] }

// Cluster returns the backends that traffic to the cluster list is spread over: those in use, sorted by address and port,
// taken from the part that ClusterScope names. With ClusterScope Node it is what is ready in the node's list, else the
// zone's list: a local list may hold draining backends while others are ready elsewhere. The result is not to be changed.
func (p *Port) Cluster() []Backend {
	if p.ClusterScope != Node {
		return inUse(p.lists[p.ClusterScope])
	}
	if l := only(p.lists[Node], func(b Backend) bool { return b.State == Ready }); len(l) > 0 {
		return l
	}
	return inUse(p.lists[Zone])
}

// Local returns the backends on this node that are in use, sorted by address and port; not to be changed.
func (p *Port) Local() []Backend { return inUse(p.lists[Node]) }

// Serving returns all backends that the node knows to serve, sorted by address and port and without duplicates, whatever
// list they are in: flows to these are left alone.
func (p *Port) Serving() []Backend {
	all := slices.Concat(p.lists[:]...)
	slices.SortFunc(all, compareBackends)
	return slices.CompactFunc(all, func(a, b Backend) bool { return a.Addr == b.Addr })
}

// ReadyLocalAddresses counts the distinct addresses in the node's list that are ready: what healthCheckNodePort tells.
func (p *Port) ReadyLocalAddresses() int {
	n := 0
	var last netip.Addr
	for _, b := range p.lists[Node] {
		if b.State == Ready && b.Addr.Addr() != last {
			last = b.Addr.Addr()
			n++
		}
	}
	return n
}

func inUse(l []Backend) []Backend { return only(l, func(b Backend) bool { return b.State != Kept }) }

// only returns the backends that want keeps, and l itself if it keeps all.
func only(l []Backend, want func(Backend) bool) []Backend {
	unwanted := func(b Backend) bool { return !want(b) }
	if !slices.ContainsFunc(l, unwanted) {
		return l
	}
	return slices.DeleteFunc(slices.Clone(l), unwanted)
}

func compareBackends(a, b Backend) int {
	if c := a.Addr.Compare(b.Addr); c != 0 {
		return c
	}
	return cmp.Compare(a.State, b.State)
}
