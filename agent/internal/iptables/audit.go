package iptables

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
)

// comparison is an audit: what the kernel was last known to hold when it began.
type comparison struct {
	runner     runner
	generation *generation
	families   []*familyComparison
}

// familyComparison shares nothing that a Sync writes to until differences.
type familyComparison struct {
	commands
	expected held
	anchors  []dataplane.Difference
	chains   []chainDifference
	// touched is what a Sync has written since.
	touched map[chainKey]bool
}

// chainDifference is a chain that is not as expected.
type chainDifference struct {
	chainKey
	problem string
}

// Audit implements dataplane.Interface. Where the kernel can tell that nobody changed anything, there is nothing to read.
func (b *Backend) Audit() dataplane.Audit {
	if b.generation.unchanged() {
		return nil
	}
	c := &comparison{runner: b.runner, generation: &b.generation}
	for _, f := range b.families {
		if f.realised == nil {
			continue
		}
		f.touched = map[chainKey]bool{}
		c.families = append(c.families, &familyComparison{commands: f.commands, expected: maps.Clone(f.realised), touched: f.touched})
	}
	if len(c.families) == 0 {
		return nil
	}
	b.generation.begin()
	return c
}

// Read implements dataplane.Audit.
func (c *comparison) Read(ctx context.Context) error {
	for _, f := range c.families {
		has, err := f.read(ctx, c.runner)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		f.anchors, f.chains = f.anchorDifferences(has), has.chains.differences(f.expected)
		f.expected = nil
	}
	return nil
}

// Starves implements dataplane.Starving: in the nft flavour, iptables-save begins anew when the ruleset has changed.
func (c *comparison) Starves() bool { return c.generation.read != nil }

// Differences implements dataplane.Audit.
func (c *comparison) Differences() []dataplane.Difference {
	var ds []dataplane.Difference
	for _, f := range c.families {
		ds = append(ds, f.anchors...)
		for _, d := range f.chains {
			if !f.touched[d.chainKey] {
				ds = append(ds, dataplane.Difference{Object: f.object(d.chainKey), Problem: d.problem})
			}
		}
	}
	c.generation.end(len(ds) == 0)
	return ds
}

// differences lists what the kernel has otherwise than expected, sorted.
func (h held) differences(expected held) []chainDifference {
	var ds []chainDifference
	for k, hash := range expected {
		switch now, ok := h[k]; {
		case !ok:
			ds = append(ds, chainDifference{k, "missing"})
		case now != hash:
			ds = append(ds, chainDifference{k, "changed"})
		}
	}
	for k := range h {
		if _, ok := expected[k]; !ok {
			ds = append(ds, chainDifference{k, "foreign"})
		}
	}
	slices.SortFunc(ds, func(a, b chainDifference) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Name, b.Name))
	})
	return ds
}
