package iptables

import (
	"math"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// program is all that one Service port needs: chains of its own, each before those that lead to it, and rules at some keys of
// some trees.
type program struct {
	chains  []Chain
	entries []entry
}

// entry is a rule of a Service port at a key of a tree. Rules at one key are sorted by rank, then by Service port.
type entry struct {
	tree treeID
	key  key
	rank int
	rule Rule
}

// Ranks of rules at one address. A cluster IP beats any other claim of the same address, protocol and port, and takes
// what is left for its address.
const (
	rankCluster = iota
	rankExternal
	rankRest
)

// inlineBackends is how many backends a cluster IP may have for their rules to stand in the dispatch leaf. A chain of its
// own costs a rule, a jump and a place in all chain listings; rules in the leaf are passed by all packets to its addresses.
const inlineBackends = 3

// portPlan is the work on one program.
type portPlan struct {
	*settings
	port           *fwd.Port
	cluster, local []fwd.Backend
	program        program
}

// chain names for a Service port: its cluster list, its local list, its entrance for external traffic, and the source
// ranges before that.
const (
	clusterChain  = "FL-SVC-"
	localChain    = "FL-LOC-"
	externalChain = "FL-EXT-"
	rangesChain   = "FL-FWL-"
)

// plan says what a Service port of this family needs.
func (s *settings) plan(p *fwd.Port) program {
	w := portPlan{settings: s, port: p, cluster: p.Cluster(), local: p.Local()}
	if s.refused.has(serviceOf(p)) || !s.support.forwards(p) {
		w.rest()
		return w.program
	}
	w.lists()
	w.hairpins()
	w.clusterIP()
	w.external()
	w.healthCheck()
	return w.program
}

func (w *portPlan) chain(prefix string) string { return prefix + w.port.ID().String() }

// to matches the Service port at one of its virtual IPs.
func (w *portPlan) to(ip netip.Addr) Rule {
	return Rule{Dst: toAddr(ip), Protocol: w.port.Protocol, DPort: PortRange{w.port.Port, w.port.Port}, Comment: w.comment()}
}

func (w *portPlan) comment() string {
	return comment(w.port.Namespace + "/" + w.port.Name + ":" + w.port.PortName.Port)
}

func (w *portPlan) add(t treeID, k key, rank int, r Rule) {
	w.program.entries = append(w.program.entries, entry{tree: t, key: k, rank: rank, rule: r})
}

func (w *portPlan) define(prefix string, level int, rules []Rule) {
	w.program.chains = append(w.program.chains, Chain{chainKey{natTable, w.chain(prefix)}, level, rules})
}

// block is the verdict on traffic that no endpoint may take: clients fail fast if there is none anywhere, and load
// balancers try other nodes if there are some elsewhere.
func (w *portPlan) block(r Rule) Rule {
	r.Verdict = Reject
	if w.port.Usable {
		r.Verdict = Drop
	}
	return r
}

func (w *portPlan) clusterIP() {
	ip := w.port.ClusterIP
	if !ip.IsValid() {
		return
	}
	at, match := key{addr: ip}, w.to(ip)
	list, chain := w.cluster, clusterChain
	if w.port.InternalLocal {
		list, chain = w.local, localChain
	}
	switch {
	case len(list) == 0:
		w.add(treeID{kind: clusterBlockTree}, at, rankCluster, w.block(match))
	case w.inline():
		for _, r := range w.choose(match, list) {
			w.add(treeID{kind: addrTree}, at, rankCluster, r)
		}
	default:
		match.Verdict, match.Chain = Goto, w.chain(chain)
		w.add(treeID{kind: addrTree}, at, rankCluster, match)
	}
	w.rest()
}

// rest ends here whatever else comes for a cluster IP, so that it does not meet rules that another proxy left.
func (w *portPlan) rest() {
	if ip := w.port.ClusterIP; ip.IsValid() {
		w.add(treeID{kind: addrTree}, key{addr: ip}, rankRest, Rule{Dst: toAddr(ip), Verdict: Accept})
	}
}

// hairpins has a rule for each endpoint that reaches itself, where one rule cannot do for all. Service ports that share an
// endpoint share its rule.
func (w *portPlan) hairpins() {
	if w.support.sameAddr {
		return
	}
	for _, b := range slices.Concat(w.cluster, w.local) {
		self := toAddr(b.Addr.Addr())
		at, match := key{addr: b.Addr.Addr()}, Rule{Src: self, Dst: self}
		mark := match
		mark.Verdict, mark.SetMark = MarkPacket, w.setMark().SetMark
		w.add(treeID{kind: hairpinTree}, at, rankCluster, mark)
		w.add(treeID{kind: hairpinForwardTree}, at, rankCluster, with(match, Rule{Verdict: Accept}))
	}
}

// inline reports whether the cluster IP's leaf holds the rules of its list: nothing else uses the list, and it is short.
func (w *portPlan) inline() bool {
	n := len(w.cluster)
	if w.port.InternalLocal {
		n = len(w.local)
	}
	return n <= inlineBackends && w.port.AffinitySeconds == 0 && !w.hasExternal()
}

func (w *portPlan) hasExternal() bool {
	return w.port.NodePort != 0 || len(w.port.ExternalIPs)+len(w.port.LoadBalancerIPs) > 0
}

// external plans node port, external and load-balancer IPs: each leads to one chain, or to nowhere without an endpoint.
func (w *portPlan) external() {
	if !w.hasExternal() {
		return
	}
	usable := len(w.cluster) > 0
	if w.port.ExternalLocal {
		usable = len(w.local) > 0
	}
	enter := Rule{Verdict: Accept}
	if len(w.cluster) > 0 || usable {
		enter = Rule{Verdict: Goto, Chain: w.chain(externalChain)}
		w.define(externalChain, levelEntrance, w.entrance())
	}
	for _, ip := range w.port.ExternalIPs {
		w.externalIP(ip, enter, usable)
	}
	filtered := enter.Verdict == Goto && w.filtersSources()
	if filtered && len(w.port.LoadBalancerIPs) > 0 {
		w.define(rangesChain, levelRanges, w.ranges(enter))
	}
	for _, ip := range w.port.LoadBalancerIPs {
		if !filtered {
			w.externalIP(ip, enter, usable)
			continue
		}
		w.externalIP(ip, Rule{Verdict: Goto, Chain: w.chain(rangesChain)}, usable)
		refuse := w.to(ip)
		refuse.Verdict = Drop
		w.add(treeID{kind: firewallTree}, key{addr: ip}, rankExternal, refuse)
	}
	if port := w.port.NodePort; port != 0 {
		match := Rule{Protocol: w.port.Protocol, DPort: PortRange{port, port}, Comment: w.comment()}
		w.add(treeID{nodePortTree, w.port.Protocol}, key{port: port}, rankExternal, with(match, enter))
		if !usable {
			w.add(treeID{nodePortBlockTree, w.port.Protocol}, key{port: port}, rankExternal, w.block(match))
		}
	}
}

func (w *portPlan) externalIP(ip netip.Addr, enter Rule, usable bool) {
	w.add(treeID{kind: addrTree}, key{addr: ip}, rankExternal, with(w.to(ip), enter))
	if !usable {
		w.add(treeID{kind: externalBlockTree}, key{addr: ip}, rankExternal, w.block(w.to(ip)))
	}
}

// with gives the match the verdict of another rule.
func with(match, verdict Rule) Rule {
	match.Verdict, match.Chain = verdict.Verdict, verdict.Chain
	return match
}

// entrance is what external traffic meets first: which list, and whether the client's address is hidden.
func (w *portPlan) entrance() []Rule {
	toCluster := Rule{Verdict: Goto, Chain: w.chain(clusterChain)}
	if !w.port.ExternalLocal {
		return []Rule{w.setMark(), toCluster}
	}
	rules := []Rule{w.clearMark()}
	if len(w.cluster) > 0 {
		// Local Pods and the node itself know no other node's load balancer: they take the short cut to all endpoints.
		for _, local := range w.localSources {
			rules = append(rules, with(local, toCluster))
		}
		mark := w.setMark()
		mark.SrcLocal = true
		rules = append(rules, mark, with(Rule{SrcLocal: true}, toCluster))
	}
	if len(w.local) == 0 {
		return append(rules, Rule{Verdict: Accept})
	}
	return append(rules, Rule{Verdict: Goto, Chain: w.chain(localChain)})
}

// filtersSources reports whether load-balancer IPs have a filter: a range of length 0 lets everybody in.
func (w *portPlan) filtersSources() bool {
	for _, r := range w.port.SourceRanges {
		if r.Bits() == 0 {
			return false
		}
	}
	return len(w.port.SourceRanges) > 0
}

// ranges lets clients in whose address is in a source range. Who is not stays untranslated, and is dropped in filter.
func (w *portPlan) ranges(enter Rule) []Rule {
	var rules []Rule
	nodeAllowed := false
	for _, r := range w.port.SourceRanges {
		rules = append(rules, with(Rule{Src: toPrefix(r)}, enter))
		for _, a := range w.nodeAddrs {
			nodeAllowed = nodeAllowed || r.Contains(a)
		}
	}
	if nodeAllowed {
		// The node's own connections to a load-balancer IP that some device of it carries have that IP as their source.
		for _, ip := range w.port.LoadBalancerIPs {
			rules = append(rules, with(Rule{Src: toAddr(ip)}, enter))
		}
	}
	return append(rules, Rule{Verdict: Accept})
}

func (w *portPlan) healthCheck() {
	if port := w.port.HealthCheckNodePort; port != 0 {
		w.add(treeID{healthTree, fwd.TCP}, key{port: port}, rankExternal,
			Rule{Protocol: fwd.TCP, DPort: PortRange{port, port}, Verdict: Accept})
	}
}

// lists defines the chains of the lists that something refers to.
func (w *portPlan) lists() {
	internal := w.port.ClusterIP.IsValid() && !w.inline()
	match := Rule{Protocol: w.port.Protocol}
	if len(w.cluster) > 0 && (internal && !w.port.InternalLocal || w.hasExternal()) {
		w.define(clusterChain, levelList, w.choose(match, w.cluster))
	}
	if len(w.local) > 0 && (internal && w.port.InternalLocal || w.hasExternal() && w.port.ExternalLocal) {
		w.define(localChain, levelList, w.choose(match, w.local))
	}
}

// choose translates what matches to one of the backends, each as likely as the others. With session affinity, a client
// that was seen goes to the same backend again as long as that is in the list.
func (w *portPlan) choose(match Rule, list []fwd.Backend) []Rule {
	var rules []Rule
	match.Verdict = DNAT
	affine := w.port.AffinitySeconds > 0 && w.support.recent
	if affine {
		for _, b := range list {
			r := match
			r.To, r.Recent = b.Addr, RecentMatch{Name: w.clients(b), Seconds: w.port.AffinitySeconds}
			rules = append(rules, r)
		}
	}
	for i, b := range list {
		r := match
		r.To = b.Addr
		if affine {
			r.Recent.Name = w.clients(b)
		}
		if left := len(list) - i; left > 1 {
			r.Probability = uint32(math.Round(certain / float64(left)))
		}
		rules = append(rules, r)
	}
	return rules
}

// clients names the list of clients of a backend. It is one list whichever virtual IP they came by, and it ends with the
// last rule that names it, so a backend that leaves all lists of the Service port loses its clients.
func (w *portPlan) clients(b fwd.Backend) string {
	return clientsPrefix + w.port.ID().String() + "-" + shortHash(b.Addr.String())
}
