package iptables

import "github.com/fairlead/fairlead/proto/fwd"

// Chains that the anchors lead to. They exist always, so that anchors never need to change.
const (
	servicesChain    = "FL-SERVICES"
	postroutingChain = "FL-POSTROUTING"
	inputChain       = "FL-INPUT"
	forwardChain     = "FL-FORWARD"
	outputChain      = "FL-OUTPUT"
)

// Chains that hooks lead to, where there is something in them.
const (
	outsideChain        = "FL-OUTSIDE"
	nodePortsChain      = "FL-NODEPORTS"
	nodePortsBlockChain = "FL-NPB"
)

// anchor is a jump from a built-in chain to one of ours.
type anchor struct {
	chainKey        // the built-in chain
	to       string // ours
}

// anchors lists the jumps that make the kernel look at our chains.
func anchors() []anchor {
	return []anchor{
		{chainKey{filterTable, "FORWARD"}, forwardChain},
		{chainKey{filterTable, "INPUT"}, inputChain},
		{chainKey{filterTable, "OUTPUT"}, outputChain},
		{chainKey{natTable, "OUTPUT"}, servicesChain},
		{chainKey{natTable, "POSTROUTING"}, postroutingChain},
		{chainKey{natTable, "PREROUTING"}, servicesChain},
	}
}

// anchorComment marks the anchors for people who read the rules.
const anchorComment = "fairlead"

// hooks returns the chains that do not belong to any one Service.
func (l *layout) hooks() []Chain {
	chains := []Chain{
		l.hook(natTable, servicesChain, l.services()),
		l.hook(natTable, postroutingChain, l.postrouting()),
		l.hook(filterTable, inputChain, l.input()),
		l.hook(filterTable, forwardChain, l.forward()),
		l.hook(filterTable, outputChain, l.output()),
	}
	if l.marksOutside() {
		var rules []Rule
		for _, local := range l.settings.localSources {
			local.Verdict = Return
			rules = append(rules, local)
		}
		chains = append(chains, l.hook(natTable, outsideChain, append(rules, l.settings.setMark())))
	}
	for chain, kind := range map[chainKey]treeKind{
		{natTable, nodePortsChain}:         nodePortTree,
		{filterTable, nodePortsBlockChain}: nodePortBlockTree,
	} {
		if rules := l.byProtocol(kind); len(rules) > 0 {
			chains = append(chains, Chain{chain, levelPorts, rules})
		}
	}
	return chains
}

func (l *layout) hook(table, name string, rules []Rule) Chain {
	return Chain{chainKey{table, name}, levelHook, rules}
}

// marksOutside reports whether sources are told apart for traffic to cluster IPs.
func (l *layout) marksOutside() bool {
	return len(l.settings.localSources) > 0 && !l.settings.allSources
}

// services is what each new connection meets. Whoever comes from outside the Pods is marked for masquerading before the
// way to a Service is known, since that is right for all cluster IPs: it saves a rule in each of them. Chains for external
// traffic set the mark anew, what turns out to be none of ours loses it at the end, and what meets no endpoint in filter.
func (l *layout) services() []Rule {
	if l.empty(addrTree) && l.empty(nodePortTree) {
		return nil
	}
	var rules []Rule
	switch {
	case l.settings.allSources:
		rules = append(rules, l.settings.setMark())
	case l.marksOutside():
		rules = append(rules, Rule{Verdict: Jump, Chain: outsideChain})
	}
	if !l.empty(addrTree) {
		rules = append(rules, Rule{Verdict: Jump, Chain: l.trees[treeID{kind: addrTree}].name})
	}
	rules = append(rules, l.toNodePorts(nodePortTree, nodePortsChain)...)
	if l.marksEarly() {
		rules = append(rules, l.settings.clearMark())
	}
	return rules
}

// marksEarly reports whether packets get the mark before it is known where they go.
func (l *layout) marksEarly() bool { return l.marksOutside() || l.settings.allSources }

// strayMarks takes the mark from packets that got it early and then met no endpoint, so that nobody else obeys it.
func (l *layout) strayMarks() []Rule {
	if !l.marksEarly() {
		return nil
	}
	stray := l.settings.clearMark()
	stray.Mark = MarkMatch{MarkValue: MarkValue{l.settings.mark, l.settings.mark}}
	stray.State = StateMatch{States: StateDNAT, Not: true}
	return []Rule{stray}
}

// postrouting hides the client's address where that was asked for by the mark, and where an endpoint reached itself: its
// own address as the source of a packet that comes back to it would be refused. Only translated connections are touched.
func (l *layout) postrouting() []Rule {
	rules := []Rule{{State: StateMatch{States: StateDNAT, Not: true}, Verdict: Return}}
	rules = append(rules, l.hairpins(hairpinTree, l.settings.setMark())...)
	return append(rules,
		Rule{Mark: MarkMatch{MarkValue{l.settings.mark, l.settings.mark}, true}, Verdict: Return},
		l.settings.clearMark(),
		Rule{Verdict: Masquerade, RandomFully: l.settings.randomFully},
	)
}

// hairpins does to translated packets of an endpoint to itself what a rule says: in one rule where the kernel compares the
// addresses, else in a tree of all endpoints.
func (l *layout) hairpins(kind treeKind, r Rule) []Rule {
	switch {
	case l.settings.support.sameAddr:
		r.SameAddr = true
	case l.empty(kind):
		return nil
	default:
		r = Rule{State: r.State, Verdict: Jump, Chain: l.trees[treeID{kind: kind}].name}
	}
	return []Rule{r}
}

func (l *layout) input() []Rule {
	rules := l.strayMarks()
	if health := (treeID{healthTree, fwd.TCP}); l.trees[health].root.keys > 0 {
		rules = append(rules, Rule{Protocol: fwd.TCP, Verdict: Jump, Chain: l.trees[health].name})
	}
	return append(rules, l.blocks(firewallTree, externalBlockTree)...)
}

// forward accepts what the mark and the hairpin promise to carry, and replies, whatever the policy of the chain.
func (l *layout) forward() []Rule {
	var rules []Rule
	if !l.settings.keepInvalid {
		rules = append(rules, Rule{State: StateMatch{States: StateInvalid}, Verdict: Drop})
	}
	translated := StateMatch{States: StateDNAT}
	rules = append(rules,
		Rule{State: StateMatch{States: StateRelated | StateEstablished}, Verdict: Accept},
		Rule{State: translated, Mark: MarkMatch{MarkValue: MarkValue{l.settings.mark, l.settings.mark}}, Verdict: Accept},
	)
	rules = append(rules, l.hairpins(hairpinForwardTree, Rule{State: translated, Verdict: Accept})...)
	rules = append(rules, l.strayMarks()...)
	return append(rules, l.blocks(firewallTree, clusterBlockTree, externalBlockTree)...)
}

func (l *layout) output() []Rule {
	return append(l.strayMarks(), l.blocks(firewallTree, clusterBlockTree)...)
}

// blocks leads new connections to those of the filter trees that hold something; node ports go with external IPs.
func (l *layout) blocks(kinds ...treeKind) []Rule {
	var rules []Rule
	for _, k := range kinds {
		if !l.empty(k) {
			rules = append(rules, Rule{Verdict: Jump, Chain: l.trees[treeID{kind: k}].name})
		}
		if k == externalBlockTree {
			rules = append(rules, l.toNodePorts(nodePortBlockTree, nodePortsBlockChain)...)
		}
	}
	for i := range rules {
		rules[i].State = StateMatch{States: StateNew}
	}
	return rules
}

func (l *layout) toNodePorts(kind treeKind, chain string) []Rule {
	if l.empty(kind) {
		return nil
	}
	var rules []Rule
	for _, match := range l.settings.nodePorts {
		match.Verdict, match.Chain = Jump, chain
		rules = append(rules, match)
	}
	return rules
}

func (l *layout) byProtocol(kind treeKind) []Rule {
	var rules []Rule
	for _, p := range fwd.Protocols() {
		if t := l.trees[treeID{kind, p}]; t.root.keys > 0 {
			rules = append(rules, Rule{Protocol: p, Verdict: Goto, Chain: t.name})
		}
	}
	return rules
}

// empty reports whether no tree of the kind holds anything.
func (l *layout) empty(kind treeKind) bool {
	for id, t := range l.trees {
		if id.kind == kind && t.root.keys > 0 {
			return false
		}
	}
	return true
}
