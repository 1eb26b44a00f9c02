package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/proto/fwd"
)

// UnsupportedError says what the kernel lacks.
type UnsupportedError struct {
	Family fwd.Family
	// Missing names features, for people.
	Missing []string
	// Err is the kernel's first answer.
	Err error
}

// Error implements error.
func (e *UnsupportedError) Error() string {
	answer, _, _ := strings.Cut(e.Err.Error(), "\n") // what follows is a consequence
	return fmt.Sprintf("nftables for %v: the kernel lacks %s: %s", e.Family, strings.Join(e.Missing, ", "), answer)
}

// Unwrap returns the kernel's answer.
func (e *UnsupportedError) Unwrap() error { return e.Err }

// probeTable is made and removed while the kernel is looked at. It is dormant: no packet meets it.
const probeTable = "fairlead-probe"

// feature is something that kernels may lack, and rules that need it.
type feature struct {
	name  string
	hook  *hook
	sets  []Set
	rules []Rule
}

// probe finds out whether the kernel takes all kinds of rules and sets that there are, and names what it does not take.
func probe(k kernel, l *language) error {
	everything := needs{affinity: [pools]bool{true, true, true, true}, lengths: [3]uint64{1 << 24}}
	for p := range everything.levels {
		everything.levels[p] = 2
	}
	s := &settings{language: l, mark: 1, localSources: []part{from("any*")}, serviceCIDRs: []netip.Prefix{l.unspecified()}}
	whole := s.structure(everything)
	sticky := portPlan{settings: s, port: fwd.NewPort(fwd.ServicePort{PortName: fwd.PortName{Protocol: fwd.TCP}, AffinitySeconds: 1}, nil)}
	own := sticky.affinity()
	whole.sets, whole.chains = append(whole.sets, own.sets...), append(whole.chains, own.chains...)
	refused := try(k, l, whole)
	switch {
	case refused == nil:
		return nil
	case errors.Is(refused, unix.EPERM):
		return fmt.Errorf("probe nftables for %v (needs CAP_NET_ADMIN): %w", l.family, refused)
	}
	lacks := &UnsupportedError{Family: l.family, Err: refused}
	if err := try(k, l, structure{}); err != nil {
		lacks.Missing = []string{"nf_tables for this family"}
		return lacks // all else follows from that
	}
	for _, f := range s.features() {
		if try(k, l, structure{sets: f.sets, chains: []Chain{{Name: "probe", Hook: f.hook, Rules: f.rules}}}) != nil {
			lacks.Missing = append(lacks.Missing, f.name)
		}
	}
	if len(lacks.Missing) == 0 {
		lacks.Missing = []string{"something"}
	}
	return lacks
}

// unspecified is 0.0.0.0 or ::, for rules that match nothing.
func (l *language) unspecified() netip.Prefix {
	if l.family == fwd.IPv6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 128)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 32)
}

// try programs something into a dormant table and removes it.
func try(k kernel, l *language, st structure) error {
	var e edit
	e.diffStructure(structure{}, st)
	e.sort()
	b := newBatch(l)
	b.table = probeTable
	b.addTable(unix.NFT_TABLE_F_DORMANT)
	e.writeObjects(b)
	e.writeRules(b, func(Chain) bool { return true })
	err := k.transact(b)
	if err == nil {
		err = removeTable(k, l, probeTable)
	}
	return err
}

func (s *settings) features() []feature {
	pre, post := &hook{"prerouting", unix.NF_INET_PRE_ROUTING, priorityDNAT}, &hook{"postrouting", unix.NF_INET_POST_ROUTING, prioritySNAT}
	number := Set{Name: "numbers", Key: []field{s.slot}, Data: s.endpoint()}
	pair := Set{Name: "pairs", Key: []field{s.saddr, s.daddr}}
	clients := Set{Name: "clients", Key: []field{s.saddr}, Data: s.endpoint(), Clients: true}
	return []feature{
		{"chains of type nat (nft_chain_nat)", pre, nil, nil},
		{"nat chains in the input hook", &hook{"input", unix.NF_INET_LOCAL_IN, prioritySNAT}, nil, nil},
		{"sets of several fields", nil, []Set{pair}, []Rule{rule(in(pair.Name, pair.Key...), drop())}},
		{"translation to what a map holds, by random numbers (nft_nat, nft_numgen)", pre, []Set{number}, []Rule{rule(s.dnat(number.Name, s.slot))}},
		{"maps that packets fill (nft_dynset)", nil, []Set{clients}, []Rule{rule(s.update(clients.Name, time.Minute))}},
		{"address types (nft_fib)", pre, nil, []Rule{rule(typeLocal("daddr"), drop())}},
		{"connection tracking (nft_ct)", post, nil, []Rule{rule(translated(), drop())}},
		{"original destinations (nft_ct, Linux 4.17)", post, nil, []Rule{rule(loaded([]field{s.originalDaddr}), drop())}},
		{"reject in the prerouting hook (nft_reject, Linux 5.9)", pre, nil, []Rule{rule(s.over(fwd.TCP), rejectReset()), rule(s.rejectUnreachable())}},
		{"masquerade (nft_masq)", post, nil, []Rule{rule(masquerade())}},
	}
}
