package iptables

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// The tables that we have chains in.
const (
	natTable    = "nat"
	filterTable = "filter"
)

// chainPrefix is the beginning of all names of ours.
const chainPrefix = "FL-"

// clientsPrefix begins the names of lists of clients (session affinity).
const clientsPrefix = "FL-"

// Chain is a chain of ours with all its rules.
type Chain struct {
	chainKey
	// Level orders chains so that none leads to one of a higher level.
	Level int
	Rules []Rule
}

type chainKey struct{ Table, Name string }

func (k chainKey) compare(o chainKey) int {
	return cmp.Or(cmp.Compare(k.Table, o.Table), cmp.Compare(k.Name, o.Name))
}

// Levels. Chains of trees lie between levelCrowd and levelRoot, the deeper the lower.
const (
	levelList     = 0
	levelEntrance = 1
	levelRanges   = 2
	levelCrowd    = 3
	levelRoot     = 100
	levelPorts    = 101
	levelHook     = 102
)

// settings is what the plan of one family needs besides the Service ports. It follows from Config and the node's facts.
type settings struct {
	family       fwd.Family
	mark         uint32
	allSources   bool // masquerade all traffic to cluster IPs
	randomFully  bool // MASQUERADE picks source ports at random
	support      support
	refused      refused
	keepInvalid  bool   // leave packets of unknown connections alone
	localSources []Rule // each matches some sources that are local Pods
	nodePorts    []Rule // each matches some addresses that node ports answer at
	nodeAddrs    []netip.Addr
}

// newSettings takes the kernel for one that has all that rules may use.
func newSettings(c Config, f fwd.Family, node fwd.NodeFacts) *settings {
	s := &settings{
		family: f, mark: 1 << c.MasqueradeBit, allSources: c.MasqueradeAll, keepInvalid: c.KeepInvalid,
		randomFully: true, support: fullSupport(),
	}
	for _, a := range node.Addresses {
		if fwd.FamilyOf(a) == f {
			s.nodeAddrs = append(s.nodeAddrs, a)
		}
	}
	prefixes := c.ClusterCIDRs
	switch c.DetectLocal {
	case dataplane.LocalNone:
		prefixes = nil
	case dataplane.LocalNodeCIDR:
		prefixes = node.PodCIDRs
	case dataplane.LocalBridge:
		prefixes, s.localSources = nil, []Rule{{In: c.Interface}}
	case dataplane.LocalPrefix:
		prefixes, s.localSources = nil, []Rule{{In: c.Interface + "+"}}
	case dataplane.LocalClusterCIDR:
	}
	for _, p := range prefixes {
		if fwd.FamilyOf(p.Addr()) == f {
			s.localSources = append(s.localSources, Rule{Src: toPrefix(p)})
		}
	}
	s.nodePorts = nodePortMatches(c, f, s.nodeAddrs)
	return s
}

// nodePortMatches says where node ports answer. Prefixes of the other family alone leave this family at its default, which
// leaves loopback out: what goes there stays on the host, and a translated packet with a loopback source may not leave it
// without route_localnet, which lets neighbours reach services on 127.0.0.1 (CVE-2020-8558).
func nodePortMatches(c Config, f fwd.Family, addrs []netip.Addr) []Rule {
	if c.NodePortPrimary {
		if len(addrs) == 0 {
			return nil
		}
		return []Rule{{Dst: toAddr(addrs[0]), DstLocal: true}}
	}
	var matches []Rule
	ofFamily, all := false, false
	for _, p := range c.NodePortAddresses {
		if fwd.FamilyOf(p.Addr()) != f {
			continue
		}
		ofFamily, all = true, all || p.Bits() == 0
		if !p.Addr().IsLoopback() {
			matches = append(matches, Rule{Dst: toPrefix(p), DstLocal: true})
		}
	}
	if ofFamily && !all {
		return matches
	}
	loopback := toPrefix(netip.MustParsePrefix("127.0.0.0/8"))
	if f == fwd.IPv6 {
		loopback = toAddr(netip.IPv6Loopback())
	}
	loopback.Not = true
	return []Rule{{Dst: loopback, DstLocal: true}}
}

func (s *settings) setMark() Rule {
	return Rule{Verdict: MarkPacket, SetMark: MarkValue{s.mark, s.mark}}
}

func (s *settings) clearMark() Rule {
	return Rule{Verdict: MarkPacket, SetMark: MarkValue{0, s.mark}}
}

// treeID names a tree: its kind, and for trees of ports the protocol.
type treeID struct {
	kind     treeKind
	protocol fwd.Protocol
}

func (id treeID) compare(o treeID) int {
	return cmp.Or(cmp.Compare(id.kind, o.kind), cmp.Compare(id.protocol, o.protocol))
}

type treeKind uint8

const (
	addrTree           treeKind = iota // nat: all virtual IPs
	nodePortTree                       // nat: node ports
	clusterBlockTree                   // filter: cluster IPs without an endpoint
	externalBlockTree                  // filter: external IPs without an endpoint
	nodePortBlockTree                  // filter: node ports without an endpoint
	firewallTree                       // filter: load-balancer IPs with source ranges
	healthTree                         // filter: health-check node ports
	hairpinTree                        // nat: endpoints, where the kernel cannot compare addresses itself
	hairpinForwardTree                 // filter: the same
)

func newTrees(f fwd.Family) map[treeID]*tree {
	addr := min(addrBits, f.Bits())
	trees := map[treeID]*tree{
		{kind: addrTree}:          {name: "FL-IP", table: natTable, bits: addr},
		{kind: clusterBlockTree}:  {name: "FL-CBLK", table: filterTable, bits: addr},
		{kind: externalBlockTree}: {name: "FL-XBLK", table: filterTable, bits: addr},
		{kind: firewallTree}:      {name: "FL-FW", table: filterTable, bits: addr},
		{healthTree, fwd.TCP}:     {name: "FL-HEALTH", table: filterTable, bits: portBits},

		{kind: hairpinTree}:        {name: "FL-HAIR", table: natTable, bits: addr},
		{kind: hairpinForwardTree}: {name: "FL-HAIRF", table: filterTable, bits: addr},
	}
	for _, p := range fwd.Protocols() {
		trees[treeID{nodePortTree, p}] = &tree{name: "FL-NP-" + p.String(), table: natTable, bits: portBits}
		trees[treeID{nodePortBlockTree, p}] = &tree{name: "FL-NPB-" + p.String(), table: filterTable, bits: portBits}
	}
	return trees
}

// layout is the whole plan of one family: which chains there are. Their rules are computed when they are asked for.
type layout struct {
	settings *settings
	table    *fwd.Table
	trees    map[treeID]*tree
}

// newLayout plans a table from scratch.
func newLayout(s *settings, t *fwd.Table) *layout {
	l := &layout{settings: s, table: t, trees: newTrees(s.family)}
	for id, p := range t.Ports() {
		if p.Family == s.family {
			for _, e := range s.plan(p).entries {
				l.trees[e.tree].add(e.key, id)
			}
		}
	}
	for _, t := range l.trees {
		t.root.compact()
	}
	return l
}

// chains yields all chains, each before those that lead to it, in an order that depends on the table alone. The rules of one
// chain are computed when it comes: those of all chains together would be most of the agent's memory.
func (l *layout) chains() iter.Seq[Chain] {
	return func(yield func(Chain) bool) {
		for _, p := range l.table.Ports() {
			if p.Family != l.settings.family {
				continue
			}
			for _, c := range l.settings.plan(p).chains {
				if !yield(c) {
					return
				}
			}
		}
		for _, id := range slices.SortedFunc(maps.Keys(l.trees), treeID.compare) {
			if !l.yieldTree(id, yield) {
				return
			}
		}
		hooks := l.hooks()
		sortChains(hooks)
		for _, c := range hooks {
			if !yield(c) {
				return
			}
		}
	}
}

// yieldTree yields the chains of one tree, and reports whether more are wanted.
func (l *layout) yieldTree(id treeID, yield func(Chain) bool) bool {
	t := l.trees[id]
	for at := range t.root.all {
		if at.crowded() && !yield(l.crowd(id, at)) {
			return false
		}
	}
	var limbs []limb
	t.walk(func(b limb) { limbs = append(limbs, b) })
	for _, b := range limbs {
		if !yield(l.limb(id, b)) {
			return false
		}
	}
	return true
}

func sortChains(chains []Chain) {
	slices.SortFunc(chains, func(a, b Chain) int { return cmp.Or(cmp.Compare(a.Level, b.Level), a.compare(b.chainKey)) })
}

// limb renders one chain of a tree.
func (l *layout) limb(id treeID, b limb) Chain {
	t := l.trees[id]
	c := Chain{chainKey: chainKey{t.table, t.chain(b.spot)}, Level: levelRoot - b.bits}
	if b.kids != nil {
		for _, kid := range b.limbs() {
			r := t.match(l.settings.family, id.protocol, kid.spot)
			r.Verdict, r.Chain = Goto, t.chain(kid.spot)
			c.Rules = append(c.Rules, r)
		}
		return c
	}
	for _, at := range b.entries {
		if at.crowded() {
			c.Rules = append(c.Rules, Rule{Dst: toAddr(at.key.addr), Verdict: Goto, Chain: t.crowdChain(at.key)})
			continue
		}
		c.Rules = append(c.Rules, l.rulesAt(id, at)...)
	}
	return c
}

// crowd renders the chain of an address with many Service ports, so that its neighbours' packets need not pass them all.
func (l *layout) crowd(id treeID, at treeEntry) Chain {
	t := l.trees[id]
	return Chain{chainKey{t.table, t.crowdChain(at.key)}, levelCrowd, l.rulesAt(id, at)}
}

// rulesAt returns the rules of one key: by rank, then by Service port; equal ones (all ports of
// a Service say the same of the rest of its cluster IP) once.
func (l *layout) rulesAt(id treeID, at treeEntry) []Rule {
	var here []entry
	for _, port := range at.ids {
		p, ok := l.table.Port(port)
		if !ok {
			continue
		}
		for _, e := range l.settings.plan(p).entries {
			if e.tree == id && e.key == at.key {
				here = append(here, e)
			}
		}
	}
	slices.SortStableFunc(here, func(a, b entry) int { return cmp.Compare(a.rank, b.rank) })
	var rules []Rule
	for i, e := range here {
		if i == 0 || e.rule != here[i-1].rule {
			rules = append(rules, e.rule)
		}
	}
	return rules
}

// shortHash is 16 hexadecimal digits, for names.
func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
