package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// support says which of the kernel's matches that not every kernel has are there. What needs one that is not is planned
// otherwise or left out, so that one Service port's rule, which the kernel would refuse, does not take all others with it.
type support struct {
	// sctp is xt_sctp. Without it, Service ports of SCTP are left out.
	sctp bool
	// recent is xt_recent. Without it, session affinity is not kept.
	recent bool
	// sameAddr is xt_bpf. Without it, endpoints that reach themselves are told by two rules for each endpoint.
	sameAddr bool
}

func fullSupport() support { return support{sctp: true, recent: true, sameAddr: true} }

// need is a match or target that rules use.
type need struct {
	// name is that of the kernel's module.
	name string
	key  chainKey
	rule Rule
	// without takes it away and says what that means; nil: nothing works without.
	without func(*support) string
}

// probeChain is a chain that nothing leads to.
const probeChain = chainPrefix + "PROBE"

// needs lists all that rules of a family may use besides what iptables itself is.
func needs(f fwd.Family) []need {
	endpoint := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 80)
	if f == fwd.IPv6 {
		endpoint = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1}), 80)
	}
	nat, filter := chainKey{natTable, probeChain}, chainKey{filterTable, probeChain}
	port := PortRange{80, 80}
	return []need{
		{"xt_comment", nat, Rule{Comment: anchorComment, Verdict: Return}, nil},
		{"xt_tcpudp", nat, Rule{Protocol: fwd.UDP, DPort: port, Verdict: Return}, nil},
		{"xt_addrtype", nat, Rule{SrcLocal: true, Verdict: Return}, nil},
		{"xt_conntrack", nat, Rule{State: StateMatch{States: StateDNAT}, Verdict: Return}, nil},
		{"xt_mark", nat, Rule{Mark: MarkMatch{MarkValue: MarkValue{1, 1}}, Verdict: MarkPacket, SetMark: MarkValue{0, 1}}, nil},
		{"xt_statistic", nat, Rule{Probability: certain / 2, Verdict: Return}, nil},
		{"xt_nat", nat, Rule{Protocol: fwd.TCP, Verdict: DNAT, To: endpoint}, nil},
		{"xt_MASQUERADE", nat, Rule{Verdict: Masquerade}, nil},
		{"REJECT", filter, Rule{Protocol: fwd.TCP, Verdict: Reject}, nil},
		{"xt_sctp", nat, Rule{Protocol: fwd.SCTP, DPort: port, Verdict: Return}, func(s *support) string {
			s.sctp = false
			return "ports of SCTP are left out"
		}},
		{"xt_recent", nat, Rule{Recent: RecentMatch{Name: probeChain, Seconds: 1}, Verdict: Return}, func(s *support) string {
			s.recent = false
			return "session affinity is not kept"
		}},
		{"xt_bpf", nat, Rule{SameAddr: true, Verdict: Return}, func(s *support) string {
			s.sameAddr = false
			return "endpoints that reach themselves cost two rules for each endpoint"
		}},
	}
}

// probe asks the kernel what it supports, by rules in a chain that nothing leads to and that is removed again. Where the
// kernel takes all of them at once it is not asked for each. It fails with the name of what nothing works without.
func (c commands) probe(ctx context.Context, r runner, logger *slog.Logger) (support, error) {
	s, all := fullSupport(), needs(c.family)
	if c.try(ctx, r, all...) == nil {
		return s, nil
	}
	for _, n := range all {
		err := c.try(ctx, r, n)
		switch {
		case err == nil:
		case n.without == nil || ctx.Err() != nil:
			return s, fmt.Errorf("probe %s: %v rules cannot do without: %w", n.name, c.family, err)
		default:
			logger.WarnContext(ctx, "kernel lacks a match", slog.String("match", n.name), slog.String("family", c.family.String()),
				slog.String("consequence", n.without(&s)), slog.Any("error", err))
		}
	}
	return s, nil
}

// try makes the kernel take a rule for each need, and removes them.
func (c commands) try(ctx context.Context, r runner, all ...need) error {
	rules := map[chainKey][]Rule{}
	for _, n := range all {
		rules[n.key] = append(rules[n.key], n.rule)
	}
	var chains []Chain
	var keys []chainKey
	for k, list := range rules {
		chains, keys = append(chains, Chain{chainKey: k, Rules: list}), append(keys, k)
	}
	sortChains(chains)
	given := diff(c.family, held{}, slices.Values(chains), nil)
	slices.SortFunc(keys, chainKey.compare)
	err := c.write(ctx, r, given.restoreInput())
	// Where one table is refused, the kernel may have taken the other.
	return errors.Join(err, c.write(ctx, r, difference{remove: keys}.restoreInput()))
}

// Reasons of notices.
const (
	reasonUnsupportedPort     = "ServicePortUnsupported"
	reasonUnsupportedAffinity = "SessionAffinityUnsupported"
)

// notices tells owners of Services what this node's kernel keeps them from, sorted by Service.
func (f *family) notices(now *fwd.Table, delta dataplane.Delta) []dataplane.Notice {
	var list []dataplane.Notice
	look := func(p *fwd.Port) {
		if p.Family == f.commands.family {
			list = append(append(list, f.support.notices(p)...), f.refused.notices(p)...)
		}
	}
	switch {
	case f.support == fullSupport() && len(f.refused) == 0:
	case delta.All:
		for _, p := range now.Ports() {
			look(p)
		}
	default:
		for _, id := range delta.Ports {
			if p, ok := now.Port(id); ok {
				look(p)
			}
		}
	}
	return list
}

// notices of one Service port.
func (s support) notices(p *fwd.Port) []dataplane.Notice {
	about := func(reason, message string) []dataplane.Notice {
		return []dataplane.Notice{{Namespace: p.Namespace, Name: p.Name, Reason: reason, Message: fmt.Sprintf(message, p.ServicePort.Port, p.Protocol, p.Family)}}
	}
	switch {
	case !s.forwards(p):
		return about(reasonUnsupportedPort, "port %d/%v is not forwarded for %v: the node's kernel lacks xt_sctp")
	case p.AffinitySeconds > 0 && !s.recent:
		return about(reasonUnsupportedAffinity, "port %d/%v has no session affinity for %v: the node's kernel lacks xt_recent")
	}
	return nil
}

// forwards reports whether rules can tell packets to the Service port from others.
func (s support) forwards(p *fwd.Port) bool { return p.Protocol != fwd.SCTP || s.sctp }

func sortNotices(list []dataplane.Notice) {
	slices.SortStableFunc(list, func(a, b dataplane.Notice) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Message, b.Message))
	})
}
