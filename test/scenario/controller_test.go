package scenario

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	controllerapp "github.com/fairlead/fairlead/controller/app"
	"github.com/fairlead/fairlead/test/hub"
)

// streamPort is where the controller serves agents; HTTP is served on the port after it.
const streamPort = uint16(7443)

// address is a port of the hub.
func address(port uint16) string { return netip.AddrPortFrom(hub.Address(), port).String() }

// controller is one that runs in this process.
type controller struct {
	stop context.CancelFunc
	done chan struct{} // closed when it has ended; err says how
	err  error
	log  string
}

// startController runs a controller with the bed's rights; changes adjust its configuration.
func startController(t *testing.T, b *bed, port uint16, changes ...func(*controllerapp.Config)) *controller {
	t.Helper()
	logPath := filepath.Join(t.TempDir(), "controller.log")
	log, err := os.Create(logPath)
	if err != nil {
		t.Fatal(err)
	}
	cfg := controllerapp.Defaults()
	cfg.Kubeconfig, cfg.Insecure, cfg.Version = b.kubeconfig, true, "scenario"
	cfg.GRPCAddress, cfg.HTTPAddress = address(port), address(port+1)
	cfg.HeartbeatInterval = 200 * time.Millisecond
	cfg.Brake.Share = 1 // what a test takes away is meant, and fresh lists would hide those of a watch that failed
	cfg.LeaseDuration, cfg.LeaseRenew, cfg.LeaseRetry = 3*time.Second, 2*time.Second, 200*time.Millisecond
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, change := range changes {
		change(&cfg)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	c := &controller{stop: stop, done: make(chan struct{}), log: logPath}
	go func() {
		defer close(c.done)
		c.err = controllerapp.Run(ctx, cfg)
		_ = log.Close()
	}()
	t.Cleanup(func() {
		if err := c.end(); err != nil {
			t.Errorf("controller: %v", err)
		}
		if t.Failed() {
			t.Logf("the end of the controller's log:\n%s", c.tail())
		}
	})
	return c
}

// end stops the controller and returns how it ended, each time it is called.
func (c *controller) end() error {
	c.stop()
	select {
	case <-c.done:
		return c.err
	case <-time.After(patience):
		return fmt.Errorf("still runs %v after its context ended", patience)
	}
}

func (c *controller) tail() string {
	const size = 8000
	f, err := os.Open(c.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		_, _ = f.Seek(-size, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return string(text)
}
