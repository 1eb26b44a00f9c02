package traffic

import (
	"bytes"
	"context"

	"github.com/fairlead/fairlead/test/workload"
)

// host is a client in this process, outside the cluster.
type host struct {
	cancel context.CancelFunc
	out    bytes.Buffer // read only after done
	done   chan error
}

// FromHost starts a client outside the cluster; it ends with ctx at the latest.
func FromHost(ctx context.Context, cfg workload.LoadConfig) (Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &host{cancel: cancel, done: make(chan error, 1)}
	go func() { h.done <- workload.Load(ctx, cfg, &h.out) }()
	return h, nil
}

// Stop implements Client.
func (h *host) Stop(context.Context) ([]workload.Sample, error) {
	h.cancel()
	if err := <-h.done; err != nil {
		return nil, err
	}
	return workload.ReadSamples(&h.out)
}
