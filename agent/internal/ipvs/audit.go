package ipvs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// comparison is an audit: what the kernel was last known to hold when it began, and all that it takes to read the kernel.
type comparison struct {
	config   Config
	kernel   *kernel
	flavor   iptables.Flavor
	local    []netip.Addr
	expected state
	printed  map[fwd.Family]rules

	found []objectDifference
	// beside is what differs besides objects and rules.
	beside, foundRules []dataplane.Difference
	// written is what a Sync has written since.
	written *written
}

// written are the objects that were written, and whether rules were.
type written struct {
	objects map[object]bool
	rules   bool
}

// objectDifference is an object that is not as expected.
type objectDifference struct {
	object
	problem string
}

// Audit implements dataplane.Interface.
func (b *Backend) Audit() dataplane.Audit {
	if b.has == nil {
		return nil
	}
	b.written = &written{objects: map[object]bool{}}
	c := &comparison{
		config: b.config, kernel: b.reader, flavor: b.flavor, local: b.local, expected: maps.Clone(b.has),
		printed: map[fwd.Family]rules{}, written: b.written,
	}
	for f, r := range b.rules {
		c.printed[f] = r.printed
	}
	return c
}

// note says that an object is about to be changed. An audit may be looking at its real servers: it keeps those.
func (b *Backend) note(o object) {
	if b.written == nil || b.written.objects[o] {
		return
	}
	b.written.objects[o] = true
	if h, ok := b.has[o]; ok {
		h.weights = maps.Clone(h.weights)
		b.has[o] = h
	}
}

// Read implements dataplane.Audit.
func (c *comparison) Read(ctx context.Context) error {
	if err := c.readObjects(ctx); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if len(c.found)+len(c.beside) > 0 {
		return nil // all will be looked at, and commands take long
	}
	if err := c.readRules(ctx); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

func (c *comparison) readObjects(ctx context.Context) error {
	snap, err := c.kernel.read(ctx, c.config.families())
	if err != nil {
		return err
	}
	for _, set := range snap.missingSets {
		c.beside = append(c.beside, dataplane.Difference{Object: "ipset " + setName(set.kind, set.family()), Problem: "missing"})
	}
	if !slices.Equal(snap.local, c.local) {
		c.beside = append(c.beside, dataplane.Difference{Object: "local addresses", Problem: "changed"})
	}
	now := snap.ours(c.config, func(o object) bool { _, ok := c.expected[o]; return ok })
	c.found = c.expected.differences(now)
	c.expected = nil
	// The kernel counts virtual servers while it lists them: one that goes meanwhile hides another.
	c.found = slices.DeleteFunc(c.found, func(d objectDifference) bool {
		return d.kind.serves() && d.problem == "missing" && ctx.Err() == nil && c.kernel.servers.IsServicePresent(service(d.object, value{}))
	})
	return ctx.Err()
}

// readRules looks at what iptables shows.
func (c *comparison) readRules(ctx context.Context) error {
	for _, f := range c.config.families() {
		p := findPrograms(c.flavor, f)
		has, err := p.list(ctx)
		if err != nil {
			return fmt.Errorf("read %v rules: %w", f, err)
		}
		c.foundRules = append(c.foundRules, has.differences(p, c.printed[f])...)
	}
	return nil
}

// Differences implements dataplane.Audit.
func (c *comparison) Differences() []dataplane.Difference {
	ds := c.beside
	for _, d := range c.found {
		if !c.written.objects[d.object] {
			ds = append(ds, dataplane.Difference{Object: d.object.String(), Problem: d.problem})
		}
	}
	if !c.written.rules {
		ds = append(ds, c.foundRules...)
	}
	slices.SortFunc(ds, func(x, y dataplane.Difference) int {
		return cmp.Or(cmp.Compare(x.Object, y.Object), cmp.Compare(x.Problem, y.Problem))
	})
	return ds
}

// differences says how now is not what was expected.
func (s state) differences(now state) []objectDifference {
	var ds []objectDifference
	for o, want := range s {
		has, there := now[o]
		switch {
		case !there:
			ds = append(ds, objectDifference{o, "missing"})
		case has.traits != want.traits || !maps.Equal(has.weights, want.weights):
			ds = append(ds, objectDifference{o, "changed"})
		}
	}
	for o := range now {
		if _, expected := s[o]; !expected {
			ds = append(ds, objectDifference{o, "foreign"})
		}
	}
	return ds
}
