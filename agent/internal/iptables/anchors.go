package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// anchorRule is a jump to one of our chains, without conditions.
func anchorRule(to string) Rule { return Rule{Comment: anchorComment, Verdict: Jump, Chain: to} }

func anchorSpec(to string) []string {
	return []string{"-m", "comment", "--comment", anchorComment, "-j", to}
}

// placement says what is wrong with an anchor: it is missing, or there are some at these positions (from 1, ascending)
// that have to go.
type placement struct {
	anchor
	insert bool
	remove []int
}

// proxyPrefix begins the names of kube-proxy's chains. Anchors stand before jumps to them, or its rules would win; before
// nothing else, since firewalls have good reasons to come first.
const proxyPrefix = "KUBE-"

// placements says what to do about the anchors; nothing for those in place.
func (rb *readback) placements() []placement {
	var ps []placement
	for _, a := range anchors() {
		p := placement{anchor: a, insert: true}
		behind := false
		for i, r := range rb.builtin[a.chainKey] {
			behind = behind || strings.HasPrefix(r.target, proxyPrefix)
			switch {
			case r.target != a.to:
			case r.ours && p.insert && !behind:
				p.insert = false
			default:
				p.remove = append(p.remove, i+1)
			}
		}
		if p.insert || len(p.remove) > 0 {
			ps = append(ps, p)
		}
	}
	return ps
}

// strays returns all rules of built-in chains that lead to chains of ours, for clean-up.
func (rb *readback) strays() []placement {
	var ps []placement
	for k, rules := range rb.builtin {
		p := placement{anchor: anchor{chainKey: k}}
		for i, r := range rules {
			if strings.HasPrefix(r.target, chainPrefix) {
				p.remove = append(p.remove, i+1)
			}
		}
		if len(p.remove) > 0 {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, func(a, b placement) int { return a.compare(b.chainKey) })
	return ps
}

// anchorer changes single rules of built-in chains.
type anchorer interface {
	// insert puts a rule first.
	insert(k chainKey, spec []string) error
	// remove takes away the rule at a position, from 1.
	remove(k chainKey, position int) error
}

// place puts the anchors where they belong: the new one first, then those that stood elsewhere go, so that there is
// always one. It returns the number of changes.
func place(ctx context.Context, ipt anchorer, ps []placement) (int, error) {
	changes := 0
	for _, p := range ps {
		shift := 0
		if p.insert {
			if err := retryLocked(ctx, func() error { return ipt.insert(p.chainKey, anchorSpec(p.to)) }); err != nil {
				return changes, fmt.Errorf("insert jump to %s into %s %s: %w", p.to, p.Table, p.Name, err)
			}
			changes, shift = changes+1, 1
		}
		for _, position := range slices.Backward(p.remove) {
			if err := retryLocked(ctx, func() error { return ipt.remove(p.chainKey, position+shift) }); err != nil {
				return changes, fmt.Errorf("remove rule %d of %s %s: %w", position+shift, p.Table, p.Name, err)
			}
			changes++
		}
	}
	return changes, nil
}

// ruleEditor is the anchorer that runs iptables. Its calls wait for the xtables lock like write does.
type ruleEditor struct{ *goiptables.IPTables }

func (e ruleEditor) insert(k chainKey, spec []string) error {
	return asCommandError(e.Insert(k.Table, k.Name, 1, spec...))
}

func (e ruleEditor) remove(k chainKey, position int) error {
	return asCommandError(e.DeleteById(k.Table, k.Name, position))
}

// asCommandError gives errors of go-iptables the form of ours.
func asCommandError(err error) error {
	if failed := (*goiptables.Error)(nil); errors.As(err, &failed) {
		return &commandError{"iptables", failed.ExitStatus(), strings.TrimSpace(failed.Error())}
	}
	return err
}

// editor returns the anchorer for these programs.
func (c commands) editor() (ruleEditor, error) {
	proto := goiptables.ProtocolIPv4
	if c.family == fwd.IPv6 {
		proto = goiptables.ProtocolIPv6
	}
	ipt, err := goiptables.New(goiptables.IPFamily(proto), goiptables.Path(c.iptables), goiptables.Timeout(lockSeconds))
	if err != nil {
		return ruleEditor{}, fmt.Errorf("start %s: %w", c.iptables, err)
	}
	return ruleEditor{ipt}, nil
}

// anchorDifferences reports anchors that are not in place.
func (c commands) anchorDifferences(rb *readback) []dataplane.Difference {
	var ds []dataplane.Difference
	for _, p := range rb.placements() {
		problem := "changed"
		if p.insert && len(p.remove) == 0 {
			problem = "missing"
		}
		ds = append(ds, dataplane.Difference{Object: c.object(p.chainKey) + " jump to " + p.to, Problem: problem})
	}
	return ds
}
