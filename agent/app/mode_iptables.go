package app

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

//nolint:wrapcheck // backends name themselves, callers the mode
func iptablesMode() mode {
	return mode{
		name:     modeIPTables,
		validate: func(r Rules) error { return r.iptables().Validate() },
		open: func(ctx context.Context, r Rules, h hostFacts) (dataplane.Interface, error) {
			c := r.iptables()
			c.Logger, c.KeepInvalid = h.logger, h.keepInvalid
			return iptables.New(ctx, c)
		},
		impossible: func(err error) bool { return errors.Is(err, iptables.ErrNoIptables) },
		retire: func(ctx context.Context, h hostFacts) (int, error) {
			err := removeIPTables(ctx)
			if errors.Is(err, iptables.ErrNoIptables) {
				h.logger.WarnContext(ctx, "not looked for what iptables mode may have left", slog.Any("error", err))
				err = nil
			}
			return 0, err
		},
		remove: func(ctx context.Context, _ hostFacts) error { return removeIPTables(ctx) },
		plan: func(w io.Writer, r Rules, f fwd.Family, t *fwd.Table) error {
			return iptables.WritePlan(w, r.iptables(), f, t)
		},
	}
}

// removeIPTables works in both flavours. Translated connections live on by the kernel's connection tracking.
//
//nolint:wrapcheck // as above
func removeIPTables(ctx context.Context) error {
	backend, err := iptables.New(ctx, iptables.Defaults())
	if err != nil {
		return err
	}
	return backend.Cleanup(ctx)
}

// iptables is the iptables backend's view of the rules.
func (r Rules) iptables() iptables.Config {
	c := iptables.Defaults()
	c.Flavor = iptables.Flavor(r.IPTablesFlavor)
	c.MasqueradeAll, c.MasqueradeBit = r.MasqueradeAll, r.MasqueradeBit
	c.ClusterCIDRs, c.DetectLocal = r.ClusterCIDRs, dataplane.LocalMode(r.detectLocal())
	c.Interface = r.PodBridgeInterface + r.PodInterfaceNamePrefix // validate lets one of them through
	c.NodePortAddresses, c.NodePortPrimary = r.nodePorts()
	c.KeepInvalid = r.KeepInvalid
	return c
}
