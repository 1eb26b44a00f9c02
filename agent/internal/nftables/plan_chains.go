package nftables

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/proto/fwd"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Chains that are always there. Those of a pool have its prefix.
const (
	preroutingChain    = "prerouting"
	outputChain        = "output"
	inputChain         = "input"
	postroutingChain   = "postrouting"
	servicesChain      = "services"
	internalChain      = "internal"
	externalChain      = "external"
	externalLocalChain = "external-local"
	nodePortsChain     = "node-ports"
	firewallChain      = "firewall"
	markOutsideChain   = "mark-outside"
	pickChain          = "pick"
	translatedChain    = "translated"
	masqueradeChain    = "hide-client"
	refuseChain        = "refuse"
)

// The base chains stand right before those of iptables-nft and most others (-100 and 100), so that where kube-proxy's
// rules are still there, in whichever mode, ours decide.
const (
	priorityDNAT = -105
	prioritySNAT = 95
)

// structure is the chains and sets that do not belong to any one Service port. Sorted by name.
type structure struct {
	sets   []Set
	chains []Chain
}

// structure plans everything but elements, and what belongs to single Service ports.
func (s *settings) structure(n needs) structure {
	st := structure{sets: s.sets(n), chains: s.chains(n)}
	slices.SortFunc(st.sets, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(st.chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	return st
}

func (s *settings) sets(n needs) []Set {
	sets := []Set{
		{Name: internalSet, Key: s.frontend(addressPool)},
		{Name: clusterIPSet, Key: []field{s.daddr}},
		{Name: hairpinSet, Key: []field{s.saddr, s.daddr}},
	}
	for p := range pool(pools) {
		key := s.frontend(p)
		sets = append(sets, Set{Name: p.prefix() + endpointsSet, Key: append(slices.Clone(key), s.slot), Data: s.endpoint()})
		for level := range n.levels[p] {
			sets = append(sets, Set{Name: overSet(p, level), Key: key})
		}
		if n.affinity[p] {
			sets = append(sets, Set{Name: p.prefix() + affinityMap, Key: key, Verdict: true})
		}
	}
	for _, p := range []pool{addressPool, nodePortPool} {
		for _, name := range []string{externalSet, externalLocal, rejectedSet} {
			sets = append(sets, Set{Name: p.prefix() + name, Key: s.frontend(p)})
		}
		if n.affinity[p] || n.affinity[p.local()] {
			sets = append(sets, Set{Name: p.prefix() + learnMap, Key: s.originalFrontend(p), Verdict: true})
		}
	}
	if n.firewall() {
		sets = append(sets, Set{Name: firewalledSet, Key: s.frontend(addressPool)})
	}
	for bits := range s.family.Bits() + 1 {
		if n.hasLength(bits) {
			sets = append(sets, Set{Name: rangesSet + itoa(bits), Key: append(s.frontend(addressPool), s.saddr)})
		}
	}
	return sets
}

// frontend is the fields that tell a frontend of the pool.
func (s *settings) frontend(p pool) []field {
	if p.byPort() {
		return []field{s.protocol, s.dport}
	}
	return []field{s.daddr, s.protocol, s.dport}
}

// originalFrontend is the same after the translation.
func (s *settings) originalFrontend(p pool) []field {
	if p.byPort() {
		return []field{s.protocol, s.originalDport}
	}
	return []field{s.originalDaddr, s.protocol, s.originalDport}
}

func (s *settings) endpoint() []field { return []field{s.daddr, s.dport} }

func (s *settings) chains(n needs) []Chain {
	chains := []Chain{
		{preroutingChain, &hook{"prerouting", unix.NF_INET_PRE_ROUTING, priorityDNAT}, []Rule{
			rule(jump(servicesChain)),
			rule(in(rejectedSet, s.frontend(addressPool)...), goTo(refuseChain)),
		}},
		// What the node itself sends to an external address may find an endpoint elsewhere, unless the node has the address.
		{outputChain, &hook{"output", unix.NF_INET_LOCAL_OUT, priorityDNAT}, []Rule{
			rule(jump(servicesChain)),
			rule(in(rejectedSet, s.frontend(addressPool)...), typeLocal("daddr"), goTo(refuseChain)),
		}},
		{inputChain, &hook{"input", unix.NF_INET_LOCAL_IN, prioritySNAT}, s.learn(n)},
		{postroutingChain, &hook{"postrouting", unix.NF_INET_POST_ROUTING, prioritySNAT}, s.postrouting()},
		{Name: servicesChain, Rules: s.services(n)},
		{Name: internalChain, Rules: s.internal()},
		{Name: refuseChain, Rules: []Rule{rule(s.over(fwd.TCP), rejectReset()), rule(s.rejectUnreachable())}},
		{Name: translatedChain, Rules: append(s.learn(n),
			rule(in(hairpinSet, s.saddr, s.daddr), goTo(masqueradeChain)),
			rule(marked(s.mark), goTo(masqueradeChain)))},
		{Name: masqueradeChain, Rules: []Rule{rule(clearMark(s.mark)), rule(masquerade())}},
		{Name: nodePortsChain, Rules: s.nodePortRules()},
	}
	if s.tellsOutside() {
		chains = append(chains, Chain{Name: markOutsideChain, Rules: s.markOutside()})
	}
	if n.firewall() {
		chains = append(chains, Chain{Name: firewallChain, Rules: s.firewall(n)})
	}
	for _, p := range []pool{addressPool, nodePortPool} {
		chains = append(chains,
			Chain{Name: p.prefix() + externalChain, Rules: []Rule{rule(setMark(s.mark)), rule(goTo(p.prefix() + pickChain))}},
			Chain{Name: p.prefix() + externalLocalChain, Rules: s.externalLocal(p)})
	}
	for p := range pool(pools) {
		chains = append(chains, s.pick(n, p))
		for level := range n.levels[p] + 1 {
			chains = append(chains, s.draw(poolLevel{p, level}))
		}
	}
	return chains
}

// services is what each new connection meets first.
func (s *settings) services(n needs) []Rule {
	var rules []Rule
	address := s.frontend(addressPool)
	if n.firewall() {
		rules = append(rules, rule(in(firewalledSet, address...), jump(firewallChain)))
	}
	rules = append(rules,
		rule(in(internalSet, address...), goTo(internalChain)),
		rule(in(externalSet, address...), goTo(externalChain)),
		rule(in(externalLocal, address...), goTo(externalLocalChain)))
	for _, match := range s.nodePorts {
		rules = append(rules, rule(append(slices.Clone(match), jump(nodePortsChain))...))
	}
	// What is left for a cluster IP is for a port that is no Service port, or has no endpoint.
	return append(rules, rule(in(clusterIPSet, s.daddr), goTo(refuseChain)))
}

func (s *settings) nodePortRules() []Rule {
	key := s.frontend(nodePortPool)
	return []Rule{
		rule(within(s.daddr, s.loopback()), back()),
		rule(in(nodePortPool.prefix()+externalSet, key...), goTo(nodePortPool.prefix()+externalChain)),
		rule(in(nodePortPool.prefix()+externalLocal, key...), goTo(nodePortPool.prefix()+externalLocalChain)),
		rule(in(nodePortPool.prefix()+rejectedSet, key...), goTo(refuseChain)),
	}
}

// tellsOutside reports whether sources are told apart for traffic to cluster IPs.
func (s *settings) tellsOutside() bool { return len(s.localSources) > 0 && !s.allSources }

func (s *settings) internal() []Rule {
	var rules []Rule
	switch {
	case s.allSources:
		rules = append(rules, rule(setMark(s.mark)))
	case s.tellsOutside():
		rules = append(rules, rule(jump(markOutsideChain)))
	}
	return append(rules, rule(goTo(pickChain)))
}

func (s *settings) markOutside() []Rule {
	var rules []Rule
	for _, local := range s.localSources {
		rules = append(rules, rule(local, back()))
	}
	return append(rules, rule(setMark(s.mark)))
}

// externalLocal: local Pods and the node itself know no other node's load balancer, so they take the short cut to the
// cluster list.
func (s *settings) externalLocal(p pool) []Rule {
	var rules []Rule
	for _, local := range s.localSources {
		rules = append(rules, rule(local, goTo(p.prefix()+pickChain)))
	}
	return append(rules, rule(typeLocal("saddr"), goTo(p.prefix()+externalChain)), rule(goTo(p.local().prefix()+pickChain)))
}

// firewall lets clients in whose address is in a source range, by one lookup for each prefix length in use, longest first.
func (s *settings) firewall(n needs) []Rule {
	var rules []Rule
	for bits := s.family.Bits(); bits >= 0; bits-- {
		if !n.hasLength(bits) {
			continue
		}
		source := s.saddr
		if bits < s.family.Bits() {
			source = masked(source, bits)
		}
		rules = append(rules, rule(in(rangesSet+itoa(bits), append(s.frontend(addressPool), source)...), back()))
	}
	return append(rules, rule(drop()))
}

// postrouting hides the client's address where that was asked for by the mark, and where an endpoint reached itself: its
// own address as the source of a packet that comes back to it would be refused. What is for an address that is no cluster
// IP, but could become one, ends here: nobody has translated it.
func (s *settings) postrouting() []Rule {
	rules := []Rule{rule(translated(), goTo(translatedChain))}
	for _, p := range s.serviceCIDRs {
		rules = append(rules, rule(within(s.daddr, p), drop()))
	}
	return rules
}

// learn remembers which endpoint a client got, for frontends with session affinity.
func (s *settings) learn(n needs) []Rule {
	var rules []Rule
	for _, p := range []pool{addressPool, nodePortPool} {
		if n.affinity[p] || n.affinity[p.local()] {
			for _, protocol := range fwd.Protocols() {
				rules = append(rules, rule(s.over(protocol), vmap(p.prefix()+learnMap, s.originalFrontend(p)...)))
			}
		}
	}
	return rules
}

// pick finds the level of the frontend's list. The chains of the levels are led to from one chain, not each from the one
// before, since the kernel counts how deep chains lead to one another, and allows 16.
func (s *settings) pick(n needs, p pool) Chain {
	c, key := Chain{Name: p.prefix() + pickChain}, s.frontend(p)
	if n.affinity[p] {
		c.Rules = append(c.Rules, rule(vmap(p.prefix()+affinityMap, key...)))
	}
	for level := range n.levels[p] {
		c.Rules = append(c.Rules, rule(notIn(overSet(p, level), key...), goTo(drawName(poolLevel{p, level}))))
	}
	c.Rules = append(c.Rules, rule(goTo(drawName(poolLevel{p, n.levels[p]}))))
	return c
}

// tries is how often a slot is drawn at random before the lower half is taken, all slots of which are filled. A list fills
// more than half of the slots of its level, so that 8 tries fail for less than one packet in 256, and then still give any
// of half the endpoints: no endpoint gets a share that differs from another's by more than a hundredth of it.
const tries = 8

// draw translates to an endpoint of the frontend's list: slots are drawn until one is filled. The first endpoint's slot
// comes in the end, twice: a packet that is on its way while the list changes may have missed the others, and even that one
// while it is replaced. Nothing there is a list without endpoints.
func (s *settings) draw(at poolLevel) Chain {
	c, key := Chain{Name: drawName(at)}, s.frontend(at.pool)
	from := func(slots, times int) {
		for range times {
			c.Rules = append(c.Rules, rule(s.dnat(at.pool.prefix()+endpointsSet, append(slices.Clone(key), random(slots))...)))
		}
	}
	switch slots := 1 << at.level; slots {
	case 1:
	case 2:
		from(slots, 1)
	default:
		from(slots, tries)
		from(slots/2, 1)
	}
	from(1, 2)
	c.Rules = append(c.Rules, rule(drop()))
	return c
}

func drawName(at poolLevel) string { return at.pool.prefix() + pickChain + "-" + itoa(1<<at.level) }
