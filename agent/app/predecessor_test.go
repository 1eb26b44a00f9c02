package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestPredecessor: kube-proxy's rules go once there is a controller's table, are tried again after a failure, and stay where nobody asked.
func TestPredecessor(t *testing.T) {
	calls, fails := 0, true
	taken, table := &outlet{}, &fwd.Table{}
	p := &predecessor{taken: taken, logger: slog.New(slog.DiscardHandler), remove: func(context.Context) error {
		calls++
		if fails {
			return errors.New("the kernel said no")
		}
		return nil
	}}
	follow := func() error {
		_, err := p.Follow(t.Context(), nil, table, dataplane.Delta{})
		return err
	}
	taken.last.Table = table // from the disk: no controller has sent it
	if err := follow(); err != nil || calls > 0 {
		t.Errorf("kube-proxy's rules are removed for a table from the disk (%v)", err)
	}
	taken.last.Epoch = 1
	if err := follow(); err == nil || !strings.Contains(err.Error(), "the kernel said no") {
		t.Errorf("error %v", err)
	}
	fails = false
	for range 3 {
		if err := follow(); err != nil {
			t.Error(err)
		}
	}
	if calls != 2 {
		t.Errorf("%d removals, want one that failed and one that did not", calls)
	}
	if newPredecessor(Defaults(), taken).remove != nil {
		t.Error("kube-proxy's rules are removed though nobody asked")
	}
	cfg := Defaults()
	cfg.ReplaceKubeProxy = true
	if newPredecessor(cfg, taken).remove == nil {
		t.Error("kube-proxy's rules stay though their removal was asked for")
	}
}

// TestTakePorts: an agent that is to replace kube-proxy waits for its ports, another one gives up.
func TestTakePorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cfg := Defaults()
	cfg.HealthzAddress, cfg.MetricsAddress = l.Addr().String(), ""
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	if _, err := takePorts(t.Context(), cfg); !errors.Is(err, errPortInUse) {
		t.Errorf("error %v, want one about the port", err)
	}
	cfg.ReplaceKubeProxy = true
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told to end"))
	if _, err := takePorts(ended, cfg); err == nil || !strings.Contains(err.Error(), "told to end") {
		t.Errorf("error %v, want the reason of the end", err)
	}
	time.AfterFunc(2*portsAgain, func() { _ = l.Close() })
	s, err := takePorts(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if s.healthz.Addr().String() != cfg.HealthzAddress || !strings.Contains(log.String(), "waiting for kube-proxy") {
		t.Errorf("address %v, log %s", s.healthz.Addr(), log.String())
	}
}
