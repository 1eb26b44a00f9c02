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

// flows removes stale UDP flows after each change.
type flows struct {
	cleaner   conntrack.Cleaner
	addresses func() ([]netip.Addr, error)
	nodePorts hostinfo.NodePortAddresses
	deleted   prometheus.Counter
}

var _ proxy.Step = flows{}

// Name implements proxy.Step.
func (flows) Name() string { return "conntrack" }

// Follow implements proxy.Step.
func (f flows) Follow(ctx context.Context, before, now *fwd.Table, delta dataplane.Delta) ([]dataplane.Notice, error) {
	in := conntrack.Input{Before: before, Now: now, Delta: delta}
	if takesNodePorts(in) {
		local, err := f.addresses()
		if err != nil {
			return nil, err
		}
		in.NodeAddrs = f.nodePorts.Select(local, now.Node().Addresses)
	}
	deleted, err := f.cleaner.Clean(ctx, conntrack.Plan(in))
	f.deleted.Add(float64(deleted))
	return nil, err //nolint:wrapcheck // the loop names the Step
}

// takesNodePorts reports whether the local addresses matter: they are asked of the kernel only then.
func takesNodePorts(in conntrack.Input) bool {
	return in.Delta.All || slices.ContainsFunc(in.Delta.Ports, func(id fwd.ID) bool {
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
