package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/agent/dataplane/trace/iptrace"
)

// WithRules adds the rules that do it, from the text of the mode's plan for the packet's family, and returns what these rules,
// followed one by one, make of the packet: the Answer's own verdict, or one of the two is wrong. In IPVS mode they are not
// followed: most of what it does is in no rule.
func (h Host) WithRules(a Answer, p Packet, plan string) (Answer, Verdict, error) {
	switch {
	case h.Mode == modeNFTables:
		w := newNFTWalk(h, a, p, plan)
		v := w.walk()
		a.Rules = w.met
		return a, v, nil
	case h.Mode != modeIPVS:
		return h.withIPTables(a, p, plan)
	}
	a.Rules = ipvsRules(a, p, plan)
	return a, a.Verdict, nil
}

// withIPTables follows the packet through the chains.
func (h Host) withIPTables(a Answer, p Packet, plan string) (Answer, Verdict, error) {
	rules, err := iptrace.Parse(plan)
	if err != nil {
		return a, "", fmt.Errorf("read rules: %w", err)
	}
	kind := trace.External
	switch {
	case slices.Contains(h.Local, p.From):
		kind = trace.Node
	case a.Client == Pod:
		kind = trace.Pod
	}
	verdict, met, err := rules.Path(iptrace.Host{Local: h.Local, PodDevice: p.Device, OtherDevice: p.Device}, trace.Case{
		Client: trace.Client{Kind: kind, Addr: p.From}, Protocol: p.Protocol, To: p.To,
	})
	if err != nil {
		return a, "", fmt.Errorf("follow rules: %w", err)
	}
	a.Rules = met
	return a, map[trace.Verdict]Verdict{
		trace.Forwarded: Forwarded, trace.Rejected: Rejected, trace.Dropped: Dropped, trace.Passed: Untouched,
	}[verdict], nil
}

// ipvsRules picks the objects of the address, and the rules that look at the sets among these; the virtual server by mark in
// place of that at the address where the packet takes the short cut. Node ports are picked at all addresses: a plan knows those
// of the Node alone.
func ipvsRules(a Answer, p Packet, plan string) []string {
	port := fmt.Sprintf("%v:%d", p.Protocol, p.To.Port())
	is := func(address string) bool { return address == p.To.Addr().String() || a.Address == NodePort }
	ours := func(words []string) bool {
		switch words[0] {
		case "ipvs":
			at, err := netip.ParseAddrPort(words[2])
			return err == nil && words[1] == p.Protocol.String() && at.Port() == p.To.Port() && is(at.Addr().String())
		case "route":
			return words[2] == p.To.Addr().String()
		}
		address, of, _ := strings.Cut(words[2], ",")
		of, _, _ = strings.Cut(of, ",")
		return words[0] == "ipset" && is(address) && (of == port || of == "" && a.Address != NodePort)
	}
	shortcuts := shortcutsIn(a, plan, ours)
	var picked, sets []string
	table := ""
	for line := range strings.Lines(plan) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case len(words) < 3:
		case words[0] == "ipvs" && len(shortcuts) > 0:
			if shortcuts[words[3]] {
				picked = append(picked, line)
			}
		case ours(words):
			picked, sets = append(picked, line), append(sets, words[1])
		case words[0] == "-A" && strings.HasPrefix(words[1], "FLV-"):
			looks := slices.ContainsFunc(words, func(w string) bool { return slices.Contains(sets, w) })
			hides := (a.Masquerade || a.Hairpin) && words[1] == "FLV-POSTROUTING" && !strings.Contains(line, " -j RETURN")
			if looks || hides || a.Address == ClusterIP && words[1] == "FLV-CLUSTER" {
				picked = append(picked, table+" "+line)
			}
		}
	}
	return picked
}

// shortcutsIn are the marks, as the plan writes them, by which the packet finds its virtual server; none if it finds that by
// its address.
func shortcutsIn(a Answer, plan string, ours func(words []string) bool) map[string]bool {
	marks := map[string]bool{}
	if a.port == nil || !a.port.ExternalLocal || a.Address == ClusterIP || a.List != "cluster" {
		return marks
	}
	for line := range strings.Lines(plan) {
		if words := strings.Fields(line); len(words) == 5 && words[3] == "fwmark" && ours(words) && strings.Contains(plan, " fwmark "+words[4]+" "+a.port.Family.String()+" ") {
			marks[words[4]] = true
		}
	}
	return marks
}
