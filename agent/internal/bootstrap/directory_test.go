package bootstrap

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/agent/internal/testca"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a running Directory.
type bench struct {
	*Directory
	log  *lockedBuffer
	stop func()
}

func start(t *testing.T, cfg Config) *bench {
	t.Helper()
	b := &bench{log: &lockedBuffer{}}
	cfg.Metrics, cfg.Logger = NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(b.log, nil))
	if cfg.Interval == 0 {
		cfg.Interval = 20 * time.Millisecond
	}
	b.Directory = New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(b.stop)
	return b
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// eventually asks again and again until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// controllers waits for the first, as a client does.
func (b *bench) controllers(t *testing.T) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return b.Controllers(ctx)
}

// TestFirstStart: nothing is known; the API server is asked at once, its answer is used, told, and found again by the next
// start when no API server is there.
func TestFirstStart(t *testing.T) {
	ca, dir := testca.New(t), t.TempDir()
	bundle := testca.New(t).PEM()
	s := startAPIServer(t, ca, map[string]string{"controllers": "192.0.2.2:7443\n192.0.2.1:7443", "ca.crt": bundle, "apiservers": "192.0.2.9:6443"})
	cfg := Config{APIServers: []string{s.address}, NeedsBundle: true, Lookup: credentialsOf(t, ca), Dir: dir, Interval: time.Hour}
	b := start(t, cfg)
	want := []string{"192.0.2.1:7443", "192.0.2.2:7443"}
	if got := b.controllers(t); !slices.Equal(got, want) {
		t.Fatalf("controllers %v\n%s", got, b.log)
	}
	if _, err := b.Roots(); err != nil {
		t.Error(err)
	}
	eventually(t, "it is said", func() bool { return strings.Contains(b.log.String(), "controllers were looked up") })
	eventually(t, "it is on disk", func() bool { _, err := os.Stat(filepath.Join(dir, fileName)); return err == nil })
	b.stop()
	s.Close()
	b = start(t, cfg)
	if got := b.controllers(t); !slices.Equal(got, want) || !slices.Equal(b.current().APIServers, []string{"192.0.2.9:6443"}) {
		t.Errorf("controllers %v after a restart", got)
	}
	b.Found([]string{"192.0.2.3:7443", "c.fairlead-system.svc:1"})
	if got := b.controllers(t); !slices.Equal(got, []string{"192.0.2.3:7443"}) {
		t.Errorf("controllers %v, pushed", got)
	}
	eventually(t, "the push is on disk", func() bool {
		k, err := load(dir)
		return err == nil && slices.Equal(k.Controllers, b.current().Controllers)
	})
	b.Found(nil)
	if got := b.controllers(t); len(got) != 1 {
		t.Errorf("controllers %v after a controller said nothing", got)
	}
}

// TestFailStatic: answers that lack something take nothing away, and what fails is said once.
func TestFailStatic(t *testing.T) {
	ca := testca.New(t)
	first, next := testca.New(t).PEM(), testca.New(t).PEM()
	s := startAPIServer(t, ca, map[string]string{"controllers": "192.0.2.1:7443", "ca.crt": first})
	b := start(t, Config{APIServers: []string{s.address}, NeedsBundle: true, Lookup: credentialsOf(t, ca)})
	b.controllers(t)
	again := func() {
		t.Helper()
		n := s.requests()
		eventually(t, "it asks again", func() bool { return s.requests() >= n+3 })
	}
	for _, data := range []map[string]string{nil, {"controllers": "", "ca.crt": "garbage"}, {"controllers": "x.svc:1", "ca.crt": ""}} {
		s.set(http.StatusOK, data)
		again()
	}
	s.set(http.StatusNotFound, nil)
	again()
	if k := b.current(); !k.equal(Known{Controllers: []string{"192.0.2.1:7443"}, Bundle: first}) {
		t.Errorf("known %+v", k)
	}
	if n := strings.Count(b.log.String(), "has no ConfigMap"); n != 1 {
		t.Errorf("said %d times:\n%s", n, b.log)
	}
	s.set(http.StatusOK, map[string]string{"controllers": "192.0.2.1:7443", "ca.crt": first + next})
	eventually(t, "the bundle has two CAs", func() bool { return b.current().Bundle == first+next })
	// A controller that answers ends the asking.
	b.Found(nil)
	eventually(t, "it calms down", func() bool {
		n, quiet := s.requests(), time.NewTimer(200*time.Millisecond)
		defer quiet.Stop()
		<-quiet.C
		return s.requests() == n
	})
	n := s.requests()
	b.Lost()
	eventually(t, "it asks when controllers are lost", func() bool { return s.requests() > n })
}

// TestOtherAPIServers: one that is away or not the right one is passed over, one that was learned is used.
func TestOtherAPIServers(t *testing.T) {
	ca := testca.New(t)
	away := startAPIServer(t, ca, nil)
	away.Close()
	wrong := startAPIServer(t, testca.New(t), nil)
	s := startAPIServer(t, ca, map[string]string{"controllers": "192.0.2.1:7443"})
	dir := t.TempDir()
	if err := (Known{APIServers: []string{s.address}}).save(dir); err != nil {
		t.Fatal(err)
	}
	b := start(t, Config{APIServers: []string{away.address, wrong.address}, Lookup: credentialsOf(t, ca), Dir: dir})
	if got := b.controllers(t); !slices.Equal(got, []string{"192.0.2.1:7443"}) {
		t.Errorf("controllers %v\n%s", got, b.log)
	}
	if wrong.requests() != 0 {
		t.Error("a token went to a server that is not the API server")
	}
}

// TestChosenControllers stay, whatever the ConfigMap says; only the bundle is looked up.
func TestChosenControllers(t *testing.T) {
	ca := testca.New(t)
	s := startAPIServer(t, ca, map[string]string{"controllers": "192.0.2.1:7443", "ca.crt": ca.PEM()})
	b := start(t, Config{Controllers: []string{"192.0.2.8:1"}, NeedsBundle: true, APIServers: []string{s.address}, Lookup: credentialsOf(t, ca)})
	if got := b.controllers(t); !slices.Equal(got, []string{"192.0.2.8:1"}) || s.requests() == 0 {
		t.Errorf("controllers %v after %d requests", got, s.requests())
	}
	b.Found([]string{"192.0.2.2:7443"})
	if got := b.controllers(t); !slices.Equal(got, []string{"192.0.2.8:1"}) {
		t.Errorf("controllers %v", got)
	}
}

// TestBadDisk: what cannot be read is said and does not stop anything, nor does a folder that cannot be written.
func TestBadDisk(t *testing.T) {
	ca, dir := testca.New(t), t.TempDir()
	write(t, filepath.Join(dir, fileName), "{")
	if err := os.Mkdir(filepath.Join(dir, fileName+".new"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := startAPIServer(t, ca, map[string]string{"controllers": "192.0.2.1:7443"})
	b := start(t, Config{APIServers: []string{s.address}, Lookup: credentialsOf(t, ca), Dir: dir})
	if got := b.controllers(t); len(got) != 1 {
		t.Errorf("controllers %v", got)
	}
	eventually(t, "both are said", func() bool {
		return strings.Contains(b.log.String(), "what an earlier agent knew cannot be used") && strings.Contains(b.log.String(), "cannot be written to disk")
	})
	if _, err := b.Roots(); err == nil || err.Error() != "no CA bundle of the controllers is known yet" {
		t.Errorf("roots: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := New(Config{Logger: slog.New(slog.DiscardHandler)}).Controllers(ended); got != nil {
		t.Errorf("controllers %v of a Directory that knows none", got)
	}
}
