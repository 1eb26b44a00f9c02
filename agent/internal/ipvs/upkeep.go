package ipvs

import (
	"context"
	"fmt"
	"reflect"

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
		if b.written != nil {
			b.written.rules = true
		}
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

// Cleanup implements dataplane.Interface. Connections through IPVS end with their virtual servers.
func (b *Backend) Cleanup(ctx context.Context) error {
	_, err := b.kernel.takeAway(ctx, b.config.families(), false)
	b.layout, b.has = nil, nil
	clear(b.rules)
	return err
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
