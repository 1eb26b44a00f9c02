package nftables

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// settings is what the plan of one family needs besides the Service ports. It follows from Config and the node's and the
// cluster's facts.
type settings struct {
	*language
	mark         uint32
	allSources   bool           // masquerade all traffic to cluster IPs
	localSources []part         // each matches some sources that are local Pods
	nodePorts    [][]part       // each matches some addresses that node ports answer at
	nodeAddrs    []netip.Addr   // the node's own
	serviceCIDRs []netip.Prefix // where cluster IPs come from
}

func newSettings(c Config, f fwd.Family, t *fwd.Table) *settings {
	s := &settings{language: newLanguage(f), mark: 1 << c.MasqueradeBit, allSources: c.MasqueradeAll}
	for _, a := range t.Node().Addresses {
		if fwd.FamilyOf(a) == f {
			s.nodeAddrs = append(s.nodeAddrs, a)
		}
	}
	s.serviceCIDRs = ofFamily(f, t.Cluster().ServiceCIDRs)
	var prefixes []netip.Prefix
	switch c.DetectLocal {
	case dataplane.LocalNone:
	case dataplane.LocalClusterCIDR:
		prefixes = c.ClusterCIDRs
	case dataplane.LocalNodeCIDR:
		prefixes = t.Node().PodCIDRs
	case dataplane.LocalBridge:
		s.localSources = []part{from(c.Interface)}
	case dataplane.LocalPrefix:
		s.localSources = []part{from(c.Interface + "*")}
	}
	for _, p := range ofFamily(f, prefixes) {
		s.localSources = append(s.localSources, within(s.saddr, p))
	}
	s.nodePorts = s.nodePortMatches(c)
	return s
}

func ofFamily(f fwd.Family, prefixes []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return fwd.FamilyOf(p.Addr()) != f })
}

func (s *settings) nodePortMatches(c Config) [][]part {
	var matches [][]part
	prefixes := ofFamily(s.family, c.NodePortAddresses)
	if len(prefixes) == 0 {
		for _, a := range s.nodeAddrs[:min(1, len(s.nodeAddrs))] {
			matches = append(matches, []part{within(s.daddr, netip.PrefixFrom(a, a.BitLen()))})
		}
		return matches
	}
	for _, p := range prefixes {
		if !p.Addr().IsLoopback() {
			matches = append(matches, []part{within(s.daddr, p), typeLocal("daddr")})
		}
	}
	return matches
}

// loopback is the addresses that stay on the host. A node port may not answer there: a translated packet with a loopback
// source leaves the host only with route_localnet, which lets neighbours reach services on 127.0.0.1 (CVE-2020-8558).
func (s *settings) loopback() netip.Prefix {
	if s.family == fwd.IPv6 {
		return netip.PrefixFrom(netip.IPv6Loopback(), s.family.Bits())
	}
	return netip.MustParsePrefix("127.0.0.0/8")
}

// pool is one of the four groups of lists. Each has its own sets and chains, since a rule names the fields of its key and
// the set that it looks into. Frontends are either addresses or node ports; and external traffic under policy Local has
// two lists: the local one is in a local pool, the cluster list that short-circuits take is with all others.
type pool uint8

const (
	addressPool pool = iota
	addressLocalPool
	nodePortPool
	nodePortLocalPool

	pools = 4
)

// prefix begins the names of what belongs to the pool.
func (p pool) prefix() string {
	return [pools]string{"", "local-", "node-port-", "node-port-local-"}[p]
}

// local is the pool of the local lists of frontends that have two.
func (p pool) local() pool { return p + 1 }

// byPort reports whether the pool's frontends are node ports.
func (p pool) byPort() bool { return p >= nodePortPool }

func poolOf(f frontend) pool {
	if f.isNodePort() {
		return nodePortPool
	}
	return addressPool
}

// names of sets. Those of a pool have its prefix.
const (
	endpointsSet  = "endpoints"      // frontend and slot -> endpoint
	affinityMap   = "affinity"       // frontend -> chain that knows its clients
	internalSet   = "internal"       // cluster IPs that are forwarded
	externalSet   = "external"       // frontends of external traffic, policy Cluster
	externalLocal = "external-local" // the same, policy Local
	rejectedSet   = "rejected"       // frontends of external traffic without any endpoint
	learnMap      = "learn"          // frontend -> chain that remembers its clients
	clusterIPSet  = "cluster-ips"    // all cluster IPs
	hairpinSet    = "hairpins"       // endpoint and itself
	firewalledSet = "firewalled"     // load-balancer IPs with source ranges
	rangesSet     = "source-ranges-" // load-balancer IP and clients that it lets in, by prefix length
)

// maxSlots is how many endpoints a list can have. What is beyond gets no connections, and an Event says so.
const maxSlots = 1 << 16

// maxLevels is how often a list can be doubled: level n is for lists of more than 2^(n-1) and up to 2^n endpoints.
const maxLevels = 16

// level of a list: the smallest n with 2^n slots enough; 0 for up to one endpoint.
func level(endpoints int) int {
	n := 0
	for 1<<n < endpoints {
		n++
	}
	return n
}

// overSet holds the frontends of a pool whose list is longer than 2^level.
func overSet(p pool, level int) string { return p.prefix() + endpointsSet + "-over-" + itoa(1<<level) }

// fewEndpoints is how many endpoints a pool may have to have chains only for the levels that its lists are of. Where there
// are more, all levels are there: the kernel looks at each element of a map when a chain comes that looks into it (0.5 µs
// each, in nf_tables_bind_set), which a list that becomes the longest would make everybody wait for.
const fewEndpoints = 200

// needs is what of the plan's structure the Service ports call for: what nobody uses is not there.
type needs struct {
	// levels is the highest level of a list in each pool, or maxLevels.
	levels [pools]int
	// affinity: some frontend of the pool has session affinity.
	affinity [pools]bool
	// lengths says which prefix lengths source ranges have, bit by bit.
	lengths [3]uint64
}

func (n *needs) hasLength(bits int) bool { return n.lengths[bits/64]>>(bits%64)&1 != 0 }

// firewall reports whether there are source ranges.
func (n *needs) firewall() bool { return n.lengths != [3]uint64{} }

// census counts who needs what.
type census struct {
	levels    [pools][maxLevels + 1]int
	endpoints [pools]int
	affinity  [pools]int
	lengths   [129]int
}

// count adds what elements call for; by is 1 or -1.
func (c *census) count(d demand, by int) {
	for _, l := range d.lists {
		c.levels[l.pool][level(l.endpoints)] += by
		c.endpoints[l.pool] += by * l.endpoints
	}
	for _, p := range d.affinity {
		c.affinity[p] += by
	}
	for _, bits := range d.lengths {
		c.lengths[bits] += by
	}
}

func (c *census) needs() needs {
	var n needs
	for p := range c.levels {
		for level, count := range c.levels[p] {
			if count > 0 {
				n.levels[p] = level
			}
		}
		if c.endpoints[p] > fewEndpoints {
			n.levels[p] = maxLevels
		}
		n.affinity[p] = c.affinity[p] > 0
	}
	for bits, count := range c.lengths {
		if count > 0 {
			n.lengths[bits/64] |= 1 << (bits % 64)
		}
	}
	return n
}

// demand is what one Service port calls for.
type demand struct {
	lists    []listDemand
	affinity []pool
	lengths  []int
}

// listDemand is a list in a pool.
type listDemand struct {
	pool      pool
	endpoints int
}

type poolLevel struct {
	pool  pool
	level int
}
