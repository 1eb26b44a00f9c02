package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/kubeproxy"
	"github.com/fairlead/fairlead/agent/internal/proxy"
	"github.com/fairlead/fairlead/proto/fwd"
)

// predecessor is the Step that takes away what kube-proxy has left on this host, once, when the kernel has our rules: from
// then on, what it left could only answer for Services that are gone. A table from the disk is no reason: kube-proxy has
// forwarded since it was written, and knows better. A nil remove leaves it.
type predecessor struct {
	taken  *outlet
	remove func(context.Context) error
	logger *slog.Logger
}

var _ proxy.Step = (*predecessor)(nil)

func newPredecessor(cfg Config, taken *outlet) *predecessor {
	p := &predecessor{taken: taken, logger: cfg.Logger}
	if cfg.ReplaceKubeProxy {
		p.remove = kubeproxy.Remove
	}
	return p
}

// Name implements proxy.Step.
func (*predecessor) Name() string { return "predecessor" }

// Follow implements proxy.Step.
func (p *predecessor) Follow(ctx context.Context, _, now *fwd.Table, _ dataplane.Delta) ([]dataplane.Notice, error) {
	if v := p.taken.last; p.remove == nil || v.Table != now || v.Epoch == 0 {
		return nil, nil
	}
	if err := p.remove(ctx); err != nil {
		return nil, fmt.Errorf("remove what kube-proxy left: %w", err)
	}
	p.remove = nil
	p.logger.InfoContext(ctx, "nothing of kube-proxy is left")
	return nil, nil
}

// portsAgain is between two attempts to bind ports that kube-proxy has.
const portsAgain = 200 * time.Millisecond

// takePorts binds the agent's ports. Where it is to replace kube-proxy it waits until that one has given them up.
func takePorts(ctx context.Context, cfg Config) (sockets, error) {
	s, err := listen(ctx, cfg)
	if !cfg.ReplaceKubeProxy || !errors.Is(err, errPortInUse) {
		return s, err
	}
	cfg.Logger.WarnContext(ctx, "waiting for kube-proxy to end: the kernel is left to it until then", slog.Any("error", err))
	again := time.NewTicker(portsAgain)
	defer again.Stop()
	for errors.Is(err, errPortInUse) {
		select {
		case <-ctx.Done():
			return sockets{}, fmt.Errorf("wait for kube-proxy to end: %w", context.Cause(ctx))
		case <-again.C:
			s, err = listen(ctx, cfg)
		}
	}
	return s, err
}

// awaitKubeProxy waits until the kube-proxy that serves metrics at an address has programmed the kernel.
func awaitKubeProxy(ctx context.Context, metrics string, logger *slog.Logger) error {
	at, err := netip.ParseAddrPort(metrics)
	if err != nil {
		return fmt.Errorf("--after-kube-proxy %q: want IP:PORT", metrics)
	}
	logger.InfoContext(ctx, "waiting until kube-proxy has programmed this node", slog.String("metrics", at.String()))
	return kubeproxy.Await(ctx, at) //nolint:wrapcheck // it names kube-proxy itself
}
