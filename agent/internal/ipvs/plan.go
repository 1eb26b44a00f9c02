package ipvs

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// settings is what the plan needs besides the Service ports. It is a value that reflect.DeepEqual can compare.
type settings struct {
	config Config
	// local are the addresses on the host's devices, sorted; nodeAddrs are those that the Node's status names.
	local, nodeAddrs []netip.Addr
	// missing are schedulers that the kernel turned out to lack.
	missing map[string]bool
}

// claim is an object that a Service port wants, with its value. Lower ranks win where several want the same object.
type claim struct {
	object
	rank  uint8
	value value
}

// A cluster IP beats any other claim of the same address, protocol and port.
const (
	rankCluster = iota
	rankExternal
)

// claims says what a Service port needs.
func (s *settings) claims(p *fwd.Port) []claim {
	w := portPlan{settings: s, port: p}
	list := p.Cluster()
	if p.InternalLocal {
		list = p.Local()
	}
	if p.ClusterIP.IsValid() {
		w.serve(clusterPort, p.ClusterIP, list)
	}
	w.external()
	w.health()
	return w.claims
}

// health claims the port at which load balancers ask about this node, at all addresses that they may use.
func (w *portPlan) health() {
	if w.port.HealthCheckNodePort == 0 {
		return
	}
	for _, a := range slices.Concat(w.port.ExternalIPs, w.port.LoadBalancerIPs, w.nodePortAddrs(w.port.Family)) {
		o := object{kind: health, protocol: fwd.TCP, addr: netip.AddrPortFrom(a, w.port.HealthCheckNodePort)}
		w.claims = append(w.claims, claim{object: o, rank: rankExternal})
	}
}

// portPlan is the work on the claims of one Service port.
type portPlan struct {
	*settings
	port   *fwd.Port
	claims []claim
}

// external claims the addresses that are not the cluster IP. Under a Local policy each has the local list, and all of them have
// one more virtual server, for local clients.
func (w *portPlan) external() {
	class, list := externalPort, w.port.Cluster()
	if w.port.ExternalLocal {
		class, list = localPort, w.port.Local()
	}
	before := len(w.claims)
	for _, ip := range w.port.ExternalIPs {
		w.serve(class, ip, list)
	}
	for _, ip := range w.port.LoadBalancerIPs {
		w.serve(class, ip, list)
		if len(w.port.Cluster()) > 0 {
			w.guard(ip)
		}
	}
	if w.port.NodePort != 0 {
		for _, a := range w.nodePortAddrs(w.port.Family) {
			w.virtual(class, netip.AddrPortFrom(a, w.port.NodePort), list)
		}
	}
	if class == localPort && len(w.claims) > before {
		w.shortcut()
	}
}

// shortcut claims the virtual server that local clients get.
func (w *portPlan) shortcut() {
	o, _ := markServer(w.port.Family, markOf(w.port))
	v := value{traits: traits{scheduler: w.scheduler(w.port)}, servers: addresses(w.port.Cluster())}
	if w.port.AffinitySeconds > 0 {
		v.scheduler = w.stickyScheduler()
	}
	w.claims = append(w.claims, claim{object: o, rank: rankExternal, value: v})
}

// stickyScheduler is the one that gives each client its server, in a virtual server by mark. Persistence cannot do it there: it
// sends clients to the port that they asked for instead of the real server's (ip_vs_sched_persist of Linux 6.1).
func (s *settings) stickyScheduler() string {
	for _, name := range []string{"mh", "sh"} {
		if !s.missing[name] {
			return name
		}
	}
	return s.config.Scheduler
}

// addresses are those of backends, in their order.
func addresses(list []fwd.Backend) []netip.AddrPort {
	var addrs []netip.AddrPort
	for _, b := range list {
		addrs = append(addrs, b.Addr)
	}
	return addrs
}

// rank orders claims by the class of the virtual server that they belong to.
func rank(class kind) uint8 {
	if class == clusterPort {
		return rankCluster
	}
	return rankExternal
}

// serve claims a virtual server at a virtual IP, and the IP itself unless some device carries it.
func (w *portPlan) serve(class kind, ip netip.Addr, list []fwd.Backend) {
	if w.config.excluded(ip) {
		return
	}
	w.virtual(class, netip.AddrPortFrom(ip, w.port.Port), list)
	if w.isLocal(ip) {
		return
	}
	for _, k := range []kind{protected, route} {
		c := claim{object: object{kind: k, addr: netip.AddrPortFrom(ip, 0)}, rank: rank(class)}
		if k == route {
			c.value.source = w.ownAddr(w.port.Family)
		}
		w.claims = append(w.claims, c)
	}
}

// virtual claims a virtual server. One without real servers refuses its clients, which is right where there is no endpoint
// anywhere; where others have some, clients are not answered.
func (w *portPlan) virtual(class kind, at netip.AddrPort, list []fwd.Backend) {
	v := value{traits: traits{scheduler: w.scheduler(w.port), affinity: w.port.AffinitySeconds}, servers: addresses(list)}
	o := object{protocol: w.port.Protocol, addr: at}
	kinds := []kind{class, server}
	if len(list) == 0 && w.port.Usable {
		kinds = append(kinds, dropped)
	}
	for _, k := range kinds {
		o.kind = k
		c := claim{object: o, rank: rank(class)}
		if k == server {
			c.value = v
		}
		if k == localPort {
			c.value.mark = markOf(w.port)
		}
		w.claims = append(w.claims, c)
	}
}

// guard claims the filter of a load-balancer IP by its clients' addresses. A range of length 0 lets everybody in.
func (w *portPlan) guard(ip netip.Addr) {
	ranges := w.port.SourceRanges
	everybody := slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Bits() == 0 })
	if len(ranges) == 0 || everybody || w.config.excluded(ip) {
		return
	}
	o := object{kind: guarded, protocol: w.port.Protocol, addr: netip.AddrPortFrom(ip, w.port.Port)}
	w.claims = append(w.claims, claim{object: o, rank: rankExternal})
	o.kind = allowed
	sources := slices.Clone(ranges)
	holdsNode := func(p netip.Prefix) bool { return slices.ContainsFunc(w.nodeAddrs, p.Contains) }
	if slices.ContainsFunc(ranges, holdsNode) {
		// The node's own connections to an IP that is local may have that IP as their source.
		sources = append(sources, netip.PrefixFrom(ip, ip.BitLen()))
	}
	for _, o.source = range sources {
		w.claims = append(w.claims, claim{object: o, rank: rankExternal})
	}
}

// scheduler is the one that a Service port gets.
func (s *settings) scheduler(p *fwd.Port) string {
	if p.Scheduler == "" || s.missing[p.Scheduler] || !slices.Contains(Schedulers(), p.Scheduler) {
		return s.config.Scheduler
	}
	return p.Scheduler
}

func (s *settings) isLocal(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(s.local, a, netip.Addr.Compare)
	return found
}

// ownAddr is the address of a family that local clients of a virtual IP use as their own: the Node's, if it is here.
// Without it they would use the virtual IP, to which no other host could answer.
func (s *settings) ownAddr(f fwd.Family) netip.Addr {
	for _, a := range s.nodeAddrs {
		if fwd.FamilyOf(a) == f && s.isLocal(a) {
			return a
		}
	}
	return netip.Addr{}
}

// nodePortAddrs returns the addresses of a family that node ports answer at. Loopback is none of them: a translated
// packet with a loopback source may not leave the host without route_localnet (CVE-2020-8558).
func (s *settings) nodePortAddrs(f fwd.Family) []netip.Addr {
	c := s.config.Rules
	ofFamily := func(p netip.Prefix) bool { return fwd.FamilyOf(p.Addr()) == f }
	restricted := slices.ContainsFunc(c.NodePortAddresses, ofFamily)
	var addrs []netip.Addr
	for _, a := range s.local {
		switch {
		case fwd.FamilyOf(a) != f || a.IsLoopback() || a.IsLinkLocalUnicast():
		case restricted && !slices.ContainsFunc(c.NodePortAddresses, func(p netip.Prefix) bool { return p.Contains(a) }):
		case c.NodePortPrimary && a != s.primary(f):
		default:
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// primary is the first address of a family that the Node's status names.
func (s *settings) primary(f fwd.Family) netip.Addr {
	i := slices.IndexFunc(s.nodeAddrs, func(a netip.Addr) bool { return fwd.FamilyOf(a) == f })
	if i < 0 {
		return netip.Addr{}
	}
	return s.nodeAddrs[i]
}
