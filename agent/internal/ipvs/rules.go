package ipvs

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Our chains. Their prefix is not that of internal/iptables, which removes what it does not know.
const (
	chainPrefix      = "FLV-"
	inputChain       = "FLV-INPUT"       // filter: refuses what is no Service port
	forwardChain     = "FLV-FORWARD"     // filter: lets answers through, whatever its policy
	blockChain       = "FLV-BLOCK"       // mangle: drops what may not be served, before IPVS takes a local client's packet
	localChain       = "FLV-LOCAL"       // mangle: the same for ports under a Local policy, where local clients are not dropped
	shortcutChain    = "FLV-SHORTCUT"    // mangle: marks local clients for the virtual server of all endpoints
	servicesChain    = "FLV-SERVICES"    // nat: marks whom to masquerade
	clusterChain     = "FLV-CLUSTER"     // nat: the same for cluster IPs, where local Pods are not
	postroutingChain = "FLV-POSTROUTING" // nat: masquerades
)

// chainKey is a chain and the table that it is in.
type chainKey struct{ table, name string }

// anchor is a jump from a built-in chain to one of ours.
type anchor struct {
	chainKey        // the built-in chain
	to       string // ours
}

func anchors() []anchor {
	return []anchor{
		{chainKey{"filter", "FORWARD"}, forwardChain},
		{chainKey{"filter", "INPUT"}, inputChain},
		{chainKey{"mangle", "INPUT"}, blockChain},
		{chainKey{"mangle", "OUTPUT"}, blockChain},
		{chainKey{"nat", "PREROUTING"}, servicesChain},
		{chainKey{"nat", "OUTPUT"}, servicesChain},
		{chainKey{"nat", "POSTROUTING"}, postroutingChain},
	}
}

// anchorRule is the jump to a chain of ours, as iptables-save writes it, without the chain that it is in.
func anchorRule(to string) string { return "-m comment --comment fairlead -j " + to }

// rules are the rules of our chains, as iptables-save writes them.
type rules map[chainKey][]string

// sentHere matches what the host sends itself.
const sentHere = "-m addrtype --src-type LOCAL"

// newRules returns all rules of a family. They do not depend on the Services: those are in the sets.
func newRules(c Config, f fwd.Family, node fwd.NodeFacts) rules {
	set := func(k kind) string { return "--match-set " + setName(k, f) }
	bit := uint32(1) << c.MarkBit
	mark := fmt.Sprintf("-j MARK --set-xmark %#x/%#x", bit, bit)
	const (
		newOnly   = "-m conntrack ! --ctstate NEW -j RETURN"
		toService = " dst,dst"
	)
	locals := localSources(c.Rules, f, node)
	forward, cluster := chainKey{"filter", forwardChain}, chainKey{"nat", clusterChain}
	r := rules{
		forward: nil,
		cluster: nil,
		{"filter", inputChain}: {
			"-m set " + set(health) + toService + " -j ACCEPT",
			newOnly,
			"-m set ! " + set(protected) + " dst -j RETURN",
			"-m set " + set(clusterPort) + toService + " -j RETURN",
			"-m set " + set(externalPort) + toService + " -j RETURN",
			"-m set " + set(localPort) + toService + " -j RETURN",
			"-p tcp -j REJECT --reject-with tcp-reset",
			"-p udp -j REJECT --reject-with " + unreachable(f),
			"-p sctp -j REJECT --reject-with " + unreachable(f),
		},
		{"mangle", blockChain}: {
			newOnly,
			"-m set " + set(guarded) + toService + " -m set ! " + set(allowed) + " dst,dst,src -j DROP",
			"-m set " + set(localPort) + toService + " -m set ! " + set(clusterPort) + toService + " -m set ! " + set(externalPort) + toService + " -g " + localChain,
			"-m set " + set(dropped) + toService + " -j DROP",
		},
		{"mangle", localChain}: append(forEach(locals, "-g "+shortcutChain),
			sentHere+" -g "+shortcutChain,
			"-m set "+set(dropped)+toService+" -j DROP",
		),
		// Packets that come before an answer find their connection without a mark, and meet nobody who takes it from them again.
		{"mangle", shortcutChain}: {
			"-m conntrack ! --ctstatus CONFIRMED -j SET --map-set " + setName(localPort, f) + toService + " --map-mark",
		},
		{"nat", servicesChain}: {
			"-m set " + set(externalPort) + toService + " " + mark,
			"-m set " + set(clusterPort) + toService + " -j " + clusterChain,
		},
		{"nat", postroutingChain}: postrouting(f, bit),
	}
	if !c.Rules.KeepInvalid {
		r[forward] = append(r[forward], "-m conntrack --ctstate INVALID -j DROP")
	}
	r[forward] = append(r[forward], "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	if !c.Rules.MasqueradeAll {
		r[cluster] = forEach(locals, "-j RETURN")
	}
	if c.Rules.MasqueradeAll || len(locals) > 0 {
		r[cluster] = append(r[cluster], mark)
	}
	return r
}

// postrouting masquerades. The bit counts on connections of IPVS alone. The mark that led a local client to its virtual server
// has done its work, and becomes the bit where that client is the host. An endpoint that reached itself has its own address as the
// source.
func postrouting(f fwd.Family, bit uint32) []string {
	led := fmt.Sprintf("-m mark --mark %#x/%#x", markTag, markTagMask)
	return []string{
		"-m ipvs ! --ipvs -j RETURN",
		fmt.Sprintf("%s %s -j MARK --set-xmark %#x/0xffffffff", led, sentHere, bit),
		led + " -j MARK --set-xmark 0x0/0xffffffff",
		fmt.Sprintf("-m bpf --bytecode %q -j MARK --set-xmark %#x/%#x", sameAddrProgram(f), bit, bit),
		fmt.Sprintf("-m mark ! --mark %#x/%#x -j RETURN", bit, bit),
		fmt.Sprintf("-j MARK --set-xmark 0x0/%#x", bit),
		"-j MASQUERADE --random-fully",
	}
}

// forEach makes a rule of each match.
func forEach(matches []string, verdict string) []string {
	var rules []string
	for _, m := range matches {
		rules = append(rules, m+" "+verdict)
	}
	return rules
}

// localSources are matches, each of some sources that are Pods of this node.
func localSources(c iptables.Config, f fwd.Family, node fwd.NodeFacts) []string {
	prefixes := c.ClusterCIDRs
	switch c.DetectLocal {
	case dataplane.LocalNone:
		return nil
	case dataplane.LocalBridge:
		return []string{"-i " + c.Interface}
	case dataplane.LocalPrefix:
		return []string{"-i " + c.Interface + "+"}
	case dataplane.LocalNodeCIDR:
		prefixes = node.PodCIDRs
	case dataplane.LocalClusterCIDR:
	}
	var matches []string
	for _, p := range prefixes {
		if fwd.FamilyOf(p.Addr()) == f {
			matches = append(matches, "-s "+p.String())
		}
	}
	return matches
}

func unreachable(f fwd.Family) string {
	if f == fwd.IPv6 {
		return "icmp6-port-unreachable"
	}
	return "icmp-port-unreachable"
}

// sameAddrProgram is classic BPF for xt_bpf that compares source and destination address, 4 bytes at a time: load from the
// source, move to X, load from the destination, leave with "no" unless equal.
func sameAddrProgram(f fwd.Family) string {
	source, words := 12, 1
	if f == fwd.IPv6 {
		source, words = 8, 4
	}
	length := 4*words + 2
	var steps []string
	for i := range words {
		from := source + 4*i
		no := length - 1 - 4*(i+1)
		steps = append(steps, fmt.Sprintf("32 0 0 %d", from), "7 0 0 0", fmt.Sprintf("32 0 0 %d", from+4*words), fmt.Sprintf("29 0 %d 0", no))
	}
	return fmt.Sprintf("%d,", length) + strings.Join(append(steps, "6 0 0 65535", "6 0 0 0"), ",")
}
