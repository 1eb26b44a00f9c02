package nftables

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

// lists is the endpoints of a Service port that the plan puts into slots, by list. The order is that of the slots. beyond is
// how many endpoints of the longer list have no slot.
type lists struct {
	cluster, local []netip.AddrPort
	beyond         int
}

// program is all that one Service port needs.
type program struct {
	// own is the sets and chains that belong to it alone: those of session affinity.
	own structure
	// elements of the shared sets (clusterIPSet, hairpinSet) may come from other Service ports too.
	elements []Element
	demand   demand
}

// shared reports whether several Service ports may have one element of the set.
func shared(set string) bool { return set == clusterIPSet || set == hairpinSet }

// claims is the frontends of a Service port. A cluster IP beats any other claim.
func claims(p *fwd.Port) (internal, external []frontend) {
	if p.ClusterIP.IsValid() {
		internal = append(internal, frontend{p.ClusterIP, p.Protocol, p.Port})
	}
	for _, ip := range slices.Concat(p.ExternalIPs, p.LoadBalancerIPs) {
		external = append(external, frontend{ip, p.Protocol, p.Port})
	}
	if p.NodePort != 0 {
		external = append(external, frontend{protocol: p.Protocol, port: p.NodePort})
	}
	return internal, external
}

// listsOf is the endpoints in the lists that the Service port uses, sorted.
func listsOf(p *fwd.Port) lists {
	internal, external := claims(p)
	var l lists
	if len(external) > 0 || len(internal) > 0 && !p.InternalLocal {
		l.cluster, l.beyond = endpoints(p.Cluster())
	}
	if len(external) > 0 && p.ExternalLocal || len(internal) > 0 && p.InternalLocal {
		var beyond int
		l.local, beyond = endpoints(p.Local())
		l.beyond = max(l.beyond, beyond)
	}
	return l
}

// endpoints are the first maxSlots of a list, and how many more there are.
func endpoints(backends []fwd.Backend) (list []netip.AddrPort, beyond int) {
	list = make([]netip.AddrPort, 0, len(backends))
	for _, b := range backends {
		list = append(list, b.Addr)
	}
	list = slices.Compact(list) // one address in two states
	n := min(len(list), maxSlots)
	return list[:n:n], len(list) - n
}

// portPlan is the work on one program.
type portPlan struct {
	*settings
	id      fwd.ID
	port    *fwd.Port
	lists   lists
	program program
}

// plan says what a Service port needs. owns tells which frontends are its own, where several Service ports claim one.
func (s *settings) plan(id fwd.ID, p *fwd.Port, l lists, owns func(frontend) bool) program {
	w := portPlan{settings: s, id: id, port: p, lists: l}
	internal, external := claims(p)
	w.program.elements = make([]Element, 0, (len(internal)+len(external)+1)*(len(l.cluster)+len(l.local)+3))
	for _, f := range internal {
		w.element(Element{Set: clusterIPSet, Key: string(f.addr.AsSlice())})
		if owns(f) {
			w.internal(f)
		}
	}
	for _, f := range external {
		if owns(f) {
			w.external(f)
		}
	}
	w.hairpins()
	if p.AffinitySeconds > 0 {
		w.program.own = w.affinity()
	}
	return w.program
}

func (w *portPlan) element(e Element) { w.program.elements = append(w.program.elements, e) }

// internal: a cluster IP without endpoints here is dropped if there are some elsewhere. Without any it is not forwarded,
// and is rejected as all undefined ports of cluster IPs are.
func (w *portPlan) internal(f frontend) {
	list, local := w.lists.cluster, w.port.InternalLocal
	if local {
		list = w.lists.local
	}
	if len(list) == 0 && !w.port.Usable {
		return
	}
	w.element(Element{Set: internalSet, Key: string(f.key())})
	w.list(addressPool, f, list, local)
}

func (w *portPlan) external(f frontend) {
	p, key := poolOf(f), string(f.key())
	if len(w.lists.cluster)+len(w.lists.local) == 0 && !w.port.Usable {
		w.element(Element{Set: p.prefix() + rejectedSet, Key: key})
		return
	}
	set := externalSet
	if w.port.ExternalLocal {
		set = externalLocal
		w.list(p.local(), f, w.lists.local, true)
	}
	w.element(Element{Set: p.prefix() + set, Key: key})
	w.list(p, f, w.lists.cluster, false)
	if slices.Contains(w.port.LoadBalancerIPs, f.addr) {
		w.sourceRanges(f)
	}
}

// list puts a list into the slots of a frontend.
func (w *portPlan) list(p pool, f frontend, list []netip.AddrPort, local bool) {
	key := f.key()
	set, slotted := p.prefix()+endpointsSet, append(key[:len(key):len(key)], make([]byte, wordSize)...)
	for slot, e := range list {
		binary.NativeEndian.PutUint32(slotted[len(key):], uint32(slot))
		w.element(Element{Set: set, Key: string(slotted), Data: endpointData(e)})
	}
	for l := range level(len(list)) {
		w.element(Element{Set: overSet(p, l), Key: string(key)})
	}
	w.program.demand.lists = append(w.program.demand.lists, listDemand{p, len(list)})
	if w.port.AffinitySeconds > 0 {
		w.element(Element{Set: p.prefix() + affinityMap, Key: string(key), Jump: w.name(local, affinityChain)})
		w.program.demand.affinity = append(w.program.demand.affinity, p)
		if p == poolOf(f) {
			w.element(Element{Set: p.prefix() + learnMap, Key: string(key), Jump: w.name(false, learnChain)})
		}
	}
}

// sourceRanges: a range of length 0 lets everybody in. The node's own connections to a load-balancer IP that some device of
// it carries have that IP as their source, so a range with the node lets that in too.
func (w *portPlan) sourceRanges(f frontend) {
	ranges := slices.Clone(w.port.SourceRanges)
	if len(ranges) == 0 || slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() == 0 }) {
		return
	}
	if slices.ContainsFunc(w.port.SourceRanges, func(r netip.Prefix) bool { return slices.ContainsFunc(w.nodeAddrs, r.Contains) }) {
		ranges = append(ranges, netip.PrefixFrom(f.addr, f.addr.BitLen()))
	}
	w.element(Element{Set: firewalledSet, Key: string(f.key())})
	for _, r := range ranges {
		w.element(Element{Set: rangesSet + itoa(r.Bits()), Key: string(append(f.key(), r.Addr().AsSlice()...))})
		w.program.demand.lengths = append(w.program.demand.lengths, r.Bits())
	}
}

func (w *portPlan) hairpins() {
	var last netip.Addr
	for _, list := range [][]netip.AddrPort{w.lists.cluster, w.lists.local} {
		for _, e := range list {
			if addr := e.Addr(); addr != last {
				w.element(Element{Set: hairpinSet, Key: string(appendAddr(appendAddr(nil, addr), addr))})
			}
			last = e.Addr()
		}
	}
}

// Chains and sets of one Service port with session affinity; its ID follows, and "local-" goes before.
const (
	affinityChain = "affinity-"
	learnChain    = "learn-"
	clientsSet    = "clients-"
	membersSet    = "members-"
)

func (w *portPlan) name(local bool, kind string) string {
	if local {
		kind = "local-" + kind
	}
	return kind + w.id.String()
}

// affinity: a client that is known goes to the endpoint that it had. Who got which endpoint is learned after the
// translation, when the packet itself says it, for each list that has the endpoint; an entry that is there is renewed and
// keeps its endpoint.
func (w *portPlan) affinity() structure {
	var st structure
	learn := Chain{Name: w.name(false, learnChain)}
	for _, l := range []struct {
		local bool
		list  []netip.AddrPort
	}{{false, w.lists.cluster}, {true, w.lists.local}} {
		clients, members := w.name(l.local, clientsSet), w.name(l.local, membersSet)
		st.sets = append(st.sets,
			Set{Name: clients, Key: []field{w.saddr}, Data: w.endpoint(), Clients: true},
			Set{Name: members, Key: w.endpoint()})
		st.chains = append(st.chains, Chain{Name: w.name(l.local, affinityChain), Rules: []Rule{
			rule(w.over(w.port.Protocol), w.dnat(clients, w.saddr)),
		}})
		timeout := time.Duration(w.port.AffinitySeconds) * time.Second
		learn.Rules = append(learn.Rules, rule(in(members, w.endpoint()...), w.update(clients, timeout)))
		for _, e := range l.list {
			w.element(Element{Set: members, Key: endpointData(e)})
		}
	}
	st.chains = append(st.chains, learn)
	return st
}
