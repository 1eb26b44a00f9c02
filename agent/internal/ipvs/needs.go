package ipvs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// need is a match or target that rules use, and a rule that uses it.
type need struct{ module, table, rule string }

// Where needs are tried: a chain that nothing leads to, and a virtual server at an address and port that no packet has. Sets
// are tried under their own names, so that what an agent leaves that is killed meanwhile is in nobody's way.
const (
	probeChain = chainPrefix + "PROBE"
	probePort  = 1
)

// plain is what every iptables can do.
func plain() need { return need{"iptables", "nat", "-j RETURN"} }

// needs lists all that the rules of a family use, in the order in which they are asked for.
func needs(f fwd.Family) []need {
	match := "-m set --match-set " + setName(clusterPort, f) + " dst,dst"
	mangle := "iptable_mangle"
	if f == fwd.IPv6 {
		mangle = "ip6table_mangle"
	}
	return []need{
		{mangle, "mangle", "-j DROP"},
		{"xt_comment", "nat", "-m comment --comment fairlead -j RETURN"},
		{"xt_conntrack", "filter", "-m conntrack ! --ctstate NEW -j ACCEPT"},
		{"xt_addrtype", "mangle", "-m addrtype --src-type LOCAL -j RETURN"},
		{"REJECT", "filter", "-p tcp -j REJECT --reject-with tcp-reset"},
		{"xt_mark", "nat", "-m mark ! --mark 0x1/0x1 -j MARK --set-xmark 0x0/0x1"},
		{"xt_MASQUERADE", "nat", "-j MASQUERADE --random-fully"},
		{"xt_set", "nat", match + " -j RETURN"},
		{"xt_set that maps marks (Linux 3.18)", "mangle", "-j SET --map-set " + setName(localPort, f) + " dst,dst --map-mark"},
		{"xt_ipvs", "nat", "-m ipvs ! --ipvs -j RETURN"},
		{"xt_bpf", "nat", fmt.Sprintf("-m bpf --bytecode %q -j RETURN", sameAddrProgram(f))},
	}
}

// probe asks the kernel for all that this mode needs besides IPVS itself, by writing some of each and removing it again. It
// fails with ErrNoIPVS and the name of what is missing.
func (k *kernel) probe(ctx context.Context, c Config, flavor iptables.Flavor) error {
	for _, f := range c.families() {
		if err := k.probeServer(c.Scheduler, f); err != nil {
			return err
		}
		made, err := k.probeSets(f)
		if err == nil {
			err = findPrograms(flavor, f).probe(ctx)
		}
		for _, of := range made {
			// A command of an agent that was killed may have brought its chain back: it goes, and the set, as any of ours do.
			err = errors.Join(err, unless(k.destroySet(setName(of, f)), unix.EBUSY))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// probeServer asks for the family and for the scheduler that every Service port may get.
func (k *kernel) probeServer(scheduler string, f fwd.Family) error {
	s := probedServer(f, scheduler)
	err := unless(k.servers.NewService(s), unix.EEXIST)
	switch {
	case errors.Is(err, unix.ENOENT):
		return lacks(fmt.Sprintf("IPVS scheduler %q", scheduler), "ip_vs_"+scheduler)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return lacks("IPVS for "+f.String(), "ip_vs with CONFIG_IP_VS_IPV6")
	case err != nil:
		return fmt.Errorf("probe %v virtual server: %w", f, err)
	}
	if err := k.removeServer(s); err != nil {
		return fmt.Errorf("probe %v virtual server: %w", f, err)
	}
	return nil
}

func probedServer(f fwd.Family, scheduler string) *ipvs.Service {
	return service(object{kind: server, protocol: fwd.UDP, addr: netip.AddrPortFrom(anyAddr(f), probePort)}, value{traits: traits{scheduler: scheduler}})
}

// removeProbed removes what an agent has left that was killed as it asked.
func (k *kernel) removeProbed(families []fwd.Family) error {
	if k.servers == nil {
		return nil
	}
	for _, f := range families {
		if err := unless(k.removeServer(probedServer(f, "")), unix.EAFNOSUPPORT); err != nil {
			return fmt.Errorf("remove probed %v virtual server: %w", f, err)
		}
	}
	return nil
}

// probeSets asks for each type of set, and returns those that it made.
func (k *kernel) probeSets(f fwd.Family) (made []kind, err error) {
	for _, of := range setKinds() {
		err := k.createSet(of, f)
		switch {
		case err == nil:
			made = append(made, of)
		case errors.Is(err, unix.EPERM):
			return made, err
		case !errors.Is(err, unix.EEXIST):
			what, module := "ipset "+setType(of), "ip_set_"+strings.NewReplacer(":", "_", ",", "").Replace(setType(of))
			if of == localPort {
				what += " with skbinfo (Linux 3.18)"
			}
			return made, fmt.Errorf("%w (%w)", lacks(what, module), err)
		}
	}
	return made, nil
}

// probe asks for all needs at once, and for each only if that fails. A command that fails for another reason, such as a
// lock that somebody holds, also fails with a plain rule.
func (p programs) probe(ctx context.Context) error {
	all := needs(p.family)
	if p.try(ctx, all...) == nil {
		return nil
	}
	for _, n := range all {
		err := p.try(ctx, n)
		if err == nil {
			continue
		}
		if err := p.try(ctx, plain()); err != nil {
			return fmt.Errorf("probe %v rules: %w", p.family, err)
		}
		return fmt.Errorf("%w (%w)", lacks(n.module+" for "+p.iptables, n.module), err)
	}
	return nil
}

// try makes the kernel take the rules, and removes them.
func (p programs) try(ctx context.Context, list ...need) error {
	tables := map[string]*bytes.Buffer{}
	for _, n := range list {
		if tables[n.table] == nil {
			tables[n.table] = &bytes.Buffer{}
		}
		fmt.Fprintf(tables[n.table], "-A %s %s\n", probeChain, n.rule)
	}
	var add, remove bytes.Buffer
	for _, table := range tablesInUse() {
		if b := tables[table]; b != nil {
			fmt.Fprintf(&add, "*%s\n:%s - [0:0]\n%sCOMMIT\n", table, probeChain, b)
			fmt.Fprintf(&remove, "*%s\n:%s - [0:0]\n-X %s\nCOMMIT\n", table, probeChain, probeChain)
		}
	}
	err := p.feed(ctx, append(add.Bytes(), remove.Bytes()...))
	if err != nil {
		// Tables that came before the one that failed have the chain.
		err = errors.Join(err, p.feed(ctx, remove.Bytes()))
	}
	return err
}
