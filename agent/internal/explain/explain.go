// Package explain says what becomes of the first packet of a connection on this node, and why: which Service port it is for,
// which list that uses, which endpoints of it and why not the others, whether the client is hidden, and the rules that do it.
//
// Input are a node's table, what its agent was told (Host), a Packet, and for the rules the text of the mode's plan; output is
// an Answer. It is written from the rules of docs/semantics.md, not from the backends, and its tests hold it to the same traces
// that backends are held to. Its neighbours are package app, which has the command, and dataplane/trace/iptrace, which walks
// iptables' rules.
package explain

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// The modes that differ in what becomes of a packet.
const (
	modeNFTables = "nftables"
	modeIPVS     = "ipvs"
)

// Host is what decides besides the table.
type Host struct {
	// Mode is iptables, ipvs or nftables.
	Mode string
	// DetectLocal, ClusterCIDRs and Interface tell this node's Pods; MasqueradeAll hides all clients of cluster IPs.
	DetectLocal   dataplane.LocalMode
	ClusterCIDRs  []netip.Prefix
	Interface     string
	MasqueradeAll bool
	// Exclude are ranges of virtual IPs that IPVS mode leaves alone.
	Exclude []netip.Prefix
	// Local are the addresses on the node's devices, NodePorts those of them at which node ports answer.
	Local, NodePorts []netip.Addr
}

// Packet is the first one of a connection.
type Packet struct {
	Protocol fwd.Protocol
	From     netip.Addr
	To       netip.AddrPort
	// Device is the one that it comes in by; "" for a packet that this node itself sends, and where that does not matter.
	Device string
}

// Verdict is what becomes of a packet.
type Verdict string

// The verdicts. Untouched is a packet that is routed as if no Service were there; Rejected is answered, Dropped is not.
const (
	Forwarded Verdict = "forwarded"
	Rejected  Verdict = "rejected"
	Dropped   Verdict = "dropped"
	Untouched Verdict = "untouched"
)

// Answer is the whole story.
type Answer struct {
	From     netip.Addr     `json:"from"`
	To       netip.AddrPort `json:"to"`
	Protocol string         `json:"protocol"`
	Mode     string         `json:"mode"`
	// Client is what the node takes the client for.
	Client Client `json:"client"`
	// Service is the Service port, as in a table; "" for none. Address is what kind of address it is reached by.
	Service string  `json:"service,omitempty"`
	Address Address `json:"address,omitempty"`
	Verdict Verdict `json:"verdict"`
	// List is the one in use, "cluster" or "local"; "" where it did not come to that.
	List string `json:"list,omitempty"`
	// Masquerade: endpoints see an address of the node as the client. Hairpin: only the endpoint that is the client does.
	Masquerade bool `json:"masquerade"`
	Hairpin    bool `json:"hairpin"`
	// AffinitySeconds is how long a client stays with its endpoint; 0 is no affinity.
	AffinitySeconds uint32 `json:"affinitySeconds,omitempty"`
	// Why are the reasons, in the order in which they count.
	Why []string `json:"why"`
	// Endpoints are all that the node knows for the Service port, sorted by address and port.
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	// Rules are what does it in the kernel, as the host's own tools print it.
	Rules []string `json:"rules,omitempty"`

	port *fwd.Port
}

// Endpoint is one backend that the node knows.
type Endpoint struct {
	Address netip.AddrPort `json:"address"`
	Used    bool           `json:"used"`
	Why     string         `json:"why"`
}

// Used returns the endpoints that the packet may reach, sorted, each as likely as the others.
func (a Answer) Used() []netip.AddrPort {
	var used []netip.AddrPort
	for _, e := range a.Endpoints {
		if e.Used {
			used = append(used, e.Address)
		}
	}
	return used
}

func (a *Answer) because(reasons ...string) { a.Why = append(a.Why, reasons...) }

// end sets the verdict and the last reason.
func (a *Answer) end(v Verdict, reason string) {
	a.Verdict = v
	a.because(reason)
}

// Explain follows the packet. The Answer has no rules yet: see WithRules.
func Explain(t *fwd.Table, h Host, p Packet) Answer {
	a := Answer{From: p.From, To: p.To, Protocol: p.Protocol.String(), Mode: h.Mode, Verdict: Untouched}
	a.Client = h.client(t, p)
	a.because(h.whyClient(a.Client, p))
	port, address, reason := h.find(t, p)
	a.because(reason)
	if port == nil {
		h.unserved(t, p, &a)
		return a
	}
	a.port, a.Service, a.Address = port, port.PortName.String(), address
	if h.Mode == modeIPVS && address != NodePort && within(h.Exclude, p.To.Addr()) {
		a.end(Untouched, "the address is in --ipvs-exclude-cidrs: it is left to others")
		return a
	}
	h.serve(t, p, &a)
	return a
}

// serve decides between the lists, as in section 3 of docs/semantics.md.
func (h Host) serve(t *fwd.Table, p Packet, a *Answer) {
	port := a.port
	local, masquerade := h.choose(t, p, a)
	a.List = "cluster"
	list := port.Cluster()
	if local {
		a.List, list = "local", port.Local()
	}
	a.Endpoints = endpointsOf(port, list, a.List)
	switch {
	case !port.Usable && a.Address != ClusterIP && a.Client == ThisNode && h.Mode != modeIPVS && !slices.Contains(h.Local, p.To.Addr()):
		a.end(Untouched, "no node has a usable endpoint; the node's own packets to an address that it does not have are not refused, they leave for it")
	case !port.Usable:
		a.end(Rejected, "no node has a usable endpoint: clients are told at once")
	case a.Address == LoadBalancerIP && !h.allowed(t, port, p):
		a.end(Dropped, "the client is in none of the Service's loadBalancerSourceRanges")
	case len(list) == 0:
		a.end(Dropped, "there are endpoints, but none on this node, which the policy Local asks for: clients get no answer, load balancers go elsewhere")
	default:
		a.Verdict, a.Masquerade = Forwarded, masquerade
		a.Hairpin = slices.ContainsFunc(list, func(b fwd.Backend) bool { return b.Addr.Addr() == p.From })
		a.AffinitySeconds = port.AffinitySeconds
		if a.Hairpin && !masquerade {
			a.because("the client is an endpoint itself: where it reaches itself its address is hidden, or it would refuse the answer")
		}
		if a.AffinitySeconds > 0 {
			a.because("session affinity: a client that has an endpoint stays with it as long as it is in the list")
		}
		return
	}
	for i := range a.Endpoints {
		a.Endpoints[i].Used = false // whatever the list says, the packet does not get there
	}
}

// choose says whether the local list is used, and whether the client is hidden.
func (h Host) choose(t *fwd.Table, p Packet, a *Answer) (local, masquerade bool) {
	port := a.port
	if a.Address == ClusterIP {
		switch {
		case h.MasqueradeAll:
			masquerade = true
			a.because("--masquerade-all hides every client of a cluster IP")
		case !h.tells(t, p):
			a.because("nothing tells this node's Pods (--detect-local-mode), so that no client of a cluster IP is hidden")
		case a.Client != Pod:
			masquerade = true
			a.because("clients that are no Pods are hidden from endpoints, whose answers would else take another way")
		}
		if port.InternalLocal {
			a.because("internalTrafficPolicy is Local")
		}
		return port.InternalLocal, masquerade
	}
	switch {
	case !port.ExternalLocal:
		a.because("externalTrafficPolicy is Cluster: clients are hidden, since endpoints on other nodes would else answer past this one")
		return false, true
	case a.Client == Pod:
		a.because("externalTrafficPolicy is Local, but a Pod of this node takes the short cut to all endpoints, and keeps its address")
		return false, false
	case a.Client == ThisNode:
		a.because("externalTrafficPolicy is Local, but the node itself takes the short cut to all endpoints, and is hidden")
		return false, true
	}
	a.because("externalTrafficPolicy is Local: endpoints of this node alone, which see the client's address")
	return true, false
}

// allowed reports whether the source ranges let the client in (SEMANTICS 2.6).
func (h Host) allowed(t *fwd.Table, port *fwd.Port, p Packet) bool {
	ranges := port.SourceRanges
	if len(ranges) == 0 || within(ranges, p.From) {
		return true
	}
	holdsNode := slices.ContainsFunc(t.Node().Addresses, func(a netip.Addr) bool { return within(ranges, a) })
	return holdsNode && p.From == p.To.Addr()
}

func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}
