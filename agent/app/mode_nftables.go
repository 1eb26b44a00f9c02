package app

import (
	"context"
	"errors"
	"io"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/nftables"
	"github.com/fairlead/fairlead/proto/fwd"
)

//nolint:wrapcheck // backends name themselves, callers the mode
func nftablesMode() mode {
	return mode{
		name:     modeNFTables,
		validate: func(r Rules) error { return r.nftables().Validate() },
		open: func(ctx context.Context, r Rules, h hostFacts) (dataplane.Interface, error) {
			c := r.nftables()
			c.Logger = h.logger
			return nftables.New(ctx, c)
		},
		impossible: unsupportedByNFTables,
		retire:     func(ctx context.Context, _ hostFacts) (int, error) { return 0, removeNFTables(ctx) },
		remove:     func(ctx context.Context, _ hostFacts) error { return removeNFTables(ctx) },
		plan: func(w io.Writer, r Rules, f fwd.Family, t *fwd.Table) error {
			return nftables.WritePlan(w, r.nftables(), f, t)
		},
	}
}

func unsupportedByNFTables(err error) bool {
	var unsupported *nftables.UnsupportedError
	return errors.As(err, &unsupported)
}

// removeNFTables finds nothing in a kernel that could not take it. Translated connections live on by the kernel's connection
// tracking.
//
//nolint:wrapcheck // as above
func removeNFTables(ctx context.Context) error {
	backend, err := nftables.New(ctx, nftables.Defaults())
	if unsupportedByNFTables(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return backend.Cleanup(ctx)
}

// nftables is the nftables backend's view of the rules. Without addresses, node ports answer at the node's primary ones.
func (r Rules) nftables() nftables.Config {
	c := nftables.Defaults()
	c.MasqueradeAll, c.MasqueradeBit = r.MasqueradeAll, r.MasqueradeBit
	c.ClusterCIDRs, c.DetectLocal = r.ClusterCIDRs, dataplane.LocalMode(r.detectLocal())
	c.Interface = r.PodBridgeInterface + r.PodInterfaceNamePrefix
	c.NodePortAddresses, _ = r.nodePorts()
	return c
}
