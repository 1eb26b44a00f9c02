package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// syncRules writes the rules where they differ from what was planned last, or, if everything counts, from what
// the kernel has.
func (b *Backend) syncRules(ctx context.Context, node fwd.NodeFacts, delta dataplane.Delta) (int, error) {
	if !delta.All && !delta.Node {
		return 0, nil
	}
	writes := 0
	for _, f := range b.config.families() {
		planned := newRules(b.config, f, node)
		if !delta.All && reflect.DeepEqual(planned, b.rules[f].planned) {
			continue
		}
		p := findPrograms(b.flavor, f)
		has, err := p.list(ctx)
		if err != nil {
			return writes, fmt.Errorf("read %v rules: %w", f, err)
		}
		printed := planned
		if last := b.rules[f]; reflect.DeepEqual(planned, last.planned) {
			printed = last.printed
		}
		if len(has.differences(p, printed)) == 0 {
			b.rules[f] = writtenRules{planned, printed}
			continue
		}
		delete(b.rules, f)
		if err := b.kernel.around(func() error { return p.write(ctx, has, planned) }); err != nil {
			return writes, fmt.Errorf("write %v rules: %w", f, err)
		}
		writes++
		if has, err = p.list(ctx); err != nil {
			return writes, fmt.Errorf("read %v rules: %w", f, err)
		}
		b.rules[f] = writtenRules{planned, has.rules}
	}
	return writes, nil
}

// Audit implements dataplane.Interface.
func (b *Backend) Audit(ctx context.Context) ([]dataplane.Difference, error) {
	if b.has == nil {
		return nil, nil
	}
	snap, err := b.kernel.read(b.config.families())
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var ds []dataplane.Difference
	for _, set := range snap.missingSets {
		ds = append(ds, dataplane.Difference{Object: "ipset " + setName(set.kind, set.family()), Problem: "missing"})
	}
	if !slices.Equal(snap.local, b.local) {
		ds = append(ds, dataplane.Difference{Object: "local addresses", Problem: "changed"})
	}
	now := snap.ours(b.config, func(o object) bool { _, ok := b.has[o]; return ok })
	ds = append(ds, b.has.differences(now)...)
	if len(ds) == 0 {
		// What takes processes is looked at where netlink finds nothing: any difference leads to a Sync of everything.
		if ds, err = b.auditRules(ctx); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
	}
	slices.SortFunc(ds, func(x, y dataplane.Difference) int {
		return cmp.Or(cmp.Compare(x.Object, y.Object), cmp.Compare(x.Problem, y.Problem))
	})
	return ds, nil
}

// auditRules looks at what iptables shows, ours and the other backend's.
func (b *Backend) auditRules(ctx context.Context) ([]dataplane.Difference, error) {
	var ds []dataplane.Difference
	for _, f := range b.config.families() {
		p := findPrograms(b.flavor, f)
		has, err := p.list(ctx)
		if err != nil {
			return nil, fmt.Errorf("read %v rules: %w", f, err)
		}
		ds = append(ds, has.differences(p, b.rules[f].printed)...)
	}
	more, err := b.other.Audit(ctx)
	if err != nil {
		return nil, fmt.Errorf("local policies: %w", err)
	}
	return append(ds, more...), nil
}

// differences says how now is not what was expected.
func (s state) differences(now state) []dataplane.Difference {
	var ds []dataplane.Difference
	for o, want := range s {
		has, there := now[o]
		switch {
		case !there:
			ds = append(ds, dataplane.Difference{Object: o.String(), Problem: "missing"})
		case has.scheduler != want.scheduler || has.affinity != want.affinity || has.source != want.source || !maps.Equal(has.weights, want.weights):
			ds = append(ds, dataplane.Difference{Object: o.String(), Problem: "changed"})
		}
	}
	for o := range now {
		if _, expected := s[o]; !expected {
			ds = append(ds, dataplane.Difference{Object: o.String(), Problem: "foreign"})
		}
	}
	return ds
}

// Cleanup implements dataplane.Interface. Connections through IPVS end with their virtual servers.
func (b *Backend) Cleanup(ctx context.Context) error {
	_, err := b.kernel.takeAway(ctx, b.config.families(), false)
	b.layout, b.has, b.reduced = nil, nil, nil
	clear(b.rules)
	return errors.Join(err, b.other.Cleanup(ctx))
}

// sweep removes what a predecessor left in the other flavour.
func (b *Backend) sweep(ctx context.Context) error {
	other := iptables.FlavorLegacy
	if b.flavor == iptables.FlavorLegacy {
		other = iptables.FlavorNFT
	}
	if findPrograms(other, fwd.IPv4) == findPrograms(b.flavor, fwd.IPv4) {
		return nil // the host has one flavour
	}
	return cleanRules(ctx, other, b.config.families())
}
