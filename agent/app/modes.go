package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/agent/internal/nftables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// The modes that this version has. modeAuto is nftables where the kernel can, else iptables.
const (
	modeIPTables = "iptables"
	modeNFTables = "nftables"
	modeAuto     = "auto"
)

func modeNames() []string { return []string{modeIPTables, modeNFTables, modeAuto} }

// iptables is the iptables backend's view of the rules.
func (r Rules) iptables() iptables.Config {
	c := iptables.Defaults()
	c.Flavor = iptables.Flavor(r.IPTablesFlavor)
	c.MasqueradeAll, c.MasqueradeBit = r.MasqueradeAll, r.MasqueradeBit
	c.ClusterCIDRs, c.DetectLocal = r.ClusterCIDRs, iptables.LocalMode(r.detectLocal())
	c.Interface = r.PodBridgeInterface + r.PodInterfaceNamePrefix // validate lets one of them through
	c.NodePortAddresses, c.NodePortPrimary = r.nodePorts()
	return c
}

// nftables is the nftables backend's view of the rules. Without addresses, node ports answer at the node's primary ones.
func (r Rules) nftables() nftables.Config {
	c := nftables.Defaults()
	c.MasqueradeAll, c.MasqueradeBit = r.MasqueradeAll, r.MasqueradeBit
	c.ClusterCIDRs, c.DetectLocal = r.ClusterCIDRs, nftables.LocalMode(r.detectLocal())
	c.Interface = r.PodBridgeInterface + r.PodInterfaceNamePrefix
	c.NodePortAddresses, _ = r.nodePorts()
	return c
}

// detectLocal is the mode in force: without one, the cluster's ranges are used if they are given.
func (r Rules) detectLocal() string {
	if r.DetectLocalMode == "" && len(r.ClusterCIDRs) > 0 {
		return "ClusterCIDR"
	}
	return r.DetectLocalMode
}

func (r Rules) nodePorts() (prefixes []netip.Prefix, primary bool) {
	for _, s := range r.NodePortAddresses {
		if s == "primary" {
			primary = true
		} else if p, err := netip.ParsePrefix(s); err == nil { // validate has seen all of them
			prefixes = append(prefixes, p.Masked())
		}
	}
	return prefixes, primary
}

// validateModes says what only the backends know.
func (r Rules) validateModes() error {
	if r.Mode == modeNFTables {
		return r.nftables().Validate() //nolint:wrapcheck // it names itself
	}
	return r.iptables().Validate() //nolint:wrapcheck // it names itself
}

// hostFacts is what backends need to know of this host besides the rules.
type hostFacts struct {
	// keepInvalid: packets of unknown connections are left alone.
	keepInvalid bool
	logger      *slog.Logger
}

// open finds the mode's backend in this host. It changes nothing. What another mode has left goes after the first Sync.
func (r Rules) open(ctx context.Context, h hostFacts) (dataplane.Interface, error) {
	backend, err := r.openMode(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("--mode %s: %w", r.Mode, err)
	}
	other := modeNFTables
	if backend.Name() == modeNFTables {
		other = modeIPTables
	}
	return &succession{Interface: backend, former: func(ctx context.Context) error { return cleanMode(ctx, other, h.logger) }}, nil
}

func (r Rules) openMode(ctx context.Context, h hostFacts) (dataplane.Interface, error) {
	if r.Mode != modeIPTables {
		c := r.nftables()
		c.Logger = h.logger
		backend, err := nftables.New(ctx, c)
		var unsupported *nftables.UnsupportedError
		switch {
		case err == nil:
			return backend, nil
		case r.Mode == modeNFTables || !errors.As(err, &unsupported):
			return nil, err //nolint:wrapcheck // the caller names the mode
		}
		h.logger.InfoContext(ctx, "this kernel cannot do nftables mode, using iptables", slog.Any("error", err))
	}
	c := r.iptables()
	c.Logger, c.KeepInvalid = h.logger, h.keepInvalid
	return iptables.New(ctx, c) //nolint:wrapcheck // the caller names the mode
}

// cleanMode removes what a mode has made on this host. Where its tools are missing it says so, and leaves it.
func cleanMode(ctx context.Context, mode string, logger *slog.Logger) error {
	rules := defaultRules()
	rules.Mode = mode
	backend, err := rules.openMode(ctx, hostFacts{logger: logger})
	var unsupported *nftables.UnsupportedError
	if errors.Is(err, iptables.ErrNoIptables) || errors.As(err, &unsupported) {
		logger.WarnContext(ctx, "not looked for what another mode may have left", slog.String("mode", mode), slog.Any("error", err))
		return nil
	}
	if err == nil {
		err = backend.Cleanup(ctx)
	}
	if err != nil {
		return fmt.Errorf("clean up %s mode: %w", mode, err)
	}
	return nil
}

// cleanAll removes what any mode has made on this host. Unlike a mode's successor it fails where it could not look: who asks
// for a clean host has to know.
func cleanAll(ctx context.Context, logger *slog.Logger) error {
	rules := defaultRules()
	_, err := rules.openMode(ctx, hostFacts{logger: logger})
	if err != nil {
		err = fmt.Errorf("clean up iptables mode: %w", err)
	} else {
		err = cleanMode(ctx, modeIPTables, logger)
	}
	return errors.Join(err, cleanMode(ctx, modeNFTables, logger))
}

// succession is a backend that takes over from another mode: the former's rules go when its own are in place, once.
type succession struct {
	dataplane.Interface
	former func(context.Context) error
}

// Sync implements dataplane.Interface.
func (s *succession) Sync(ctx context.Context, before, now *fwd.Table, delta dataplane.Delta) (dataplane.Report, error) {
	report, err := s.Interface.Sync(ctx, before, now, delta)
	if err != nil || s.former == nil {
		return report, err //nolint:wrapcheck // a decorator
	}
	if err := s.former(ctx); err != nil {
		return report, err
	}
	s.former = nil
	return report, nil
}

// watcher is what a backend may offer besides; see proxy.Watcher.
type watcher interface {
	Watch(ctx context.Context) <-chan struct{}
}

// Watch implements proxy.Watcher; the channel is nil where the backend notices nothing by itself.
func (s *succession) Watch(ctx context.Context) <-chan struct{} {
	if w, ok := s.Interface.(watcher); ok {
		return w.Watch(ctx)
	}
	return nil
}

// writePlan prints what the backend would program.
func (r Rules) writePlan(w io.Writer, f fwd.Family, t *fwd.Table) error {
	if r.Mode == modeNFTables {
		return nftables.WritePlan(w, r.nftables(), f, t) //nolint:wrapcheck // the command names itself
	}
	return iptables.WritePlan(w, r.iptables(), f, t) //nolint:wrapcheck // the command names itself
}
