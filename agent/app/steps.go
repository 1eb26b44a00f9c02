package app

import (
	"context"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/conntrack"
	"github.com/fairlead/fairlead/agent/internal/healthcheck"
	"github.com/fairlead/fairlead/agent/internal/hostinfo"
	"github.com/fairlead/fairlead/agent/internal/proxy"
	"github.com/fairlead/fairlead/proto/fwd"
)

// flows removes stale UDP flows after each change, also of this host's addresses, and once, after the start, attempts at TCP
// connections from before the rules.
type flows struct {
	// clean is that of a conntrack.Cleaner, addresses is hostinfo.Addresses.
	clean     func(context.Context, []conntrack.Filter) (deleted int, err error)
	addresses func() ([]netip.Addr, error)
	nodePorts hostinfo.NodePortAddresses
	deleted   prometheus.Counter
	// local are the addresses that node ports were at when flows were last cleaned, sorted.
	local []netip.Addr
	// cleaned: it succeeded once.
	cleaned bool
}

var _ proxy.Step = (*flows)(nil)

// Name implements proxy.Step.
func (*flows) Name() string { return "conntrack" }

// Follow implements proxy.Step. An address that came may have flows to node ports from before, which nobody translates.
func (f *flows) Follow(ctx context.Context, before, now *fwd.Table, delta dataplane.Delta) ([]dataplane.Notice, error) {
	in := conntrack.Input{Before: before, Now: now, Delta: delta, First: !f.cleaned}
	looks := takesNodePorts(in)
	if looks {
		local, err := f.addresses()
		if err != nil {
			return nil, err
		}
		in.NodeAddrs = f.nodePorts.Select(local, now.Node().Addresses)
		in.Delta.All = in.Delta.All || slices.ContainsFunc(in.NodeAddrs, func(a netip.Addr) bool {
			_, known := slices.BinarySearchFunc(f.local, a, netip.Addr.Compare)
			return !known
		})
	}
	deleted, err := f.clean(ctx, conntrack.Plan(in))
	f.deleted.Add(float64(deleted))
	f.cleaned = f.cleaned || err == nil
	if err == nil && looks {
		f.local = in.NodeAddrs
	}
	return nil, err //nolint:wrapcheck // the loop names the Step
}

// takesNodePorts reports whether the local addresses matter, or may be what changed: they are asked of the kernel only then.
func takesNodePorts(in conntrack.Input) bool {
	return in.Delta.All || in.Delta.Empty() || slices.ContainsFunc(in.Delta.Ports, func(id fwd.ID) bool {
		return hasUDPNodePort(in.Before, id) || hasUDPNodePort(in.Now, id)
	})
}

func hasUDPNodePort(t *fwd.Table, id fwd.ID) bool {
	p, ok := t.Port(id)
	return ok && p.Protocol == fwd.UDP && p.NodePort != 0
}

// checkPorts serves healthCheckNodePorts.
type checkPorts struct {
	index    healthcheck.Index
	services *healthcheck.Services
}

var _ proxy.Step = (*checkPorts)(nil)

// Name implements proxy.Step.
func (*checkPorts) Name() string { return "healthcheck" }

// Follow implements proxy.Step.
func (c *checkPorts) Follow(ctx context.Context, _, now *fwd.Table, delta dataplane.Delta) ([]dataplane.Notice, error) {
	return c.services.Update(ctx, c.index.Update(now, delta)), nil
}
