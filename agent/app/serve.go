package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// Limits of the HTTP servers: who asks is a kubelet, a load balancer or Prometheus.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 30 * time.Second
	maxHeader    = 16 << 10
)

// sockets are the ports that an agent serves, bound before anything else is done: an agent that cannot have them changes
// nothing. A nil one is not wanted.
type sockets struct{ healthz, metrics net.Listener }

func listen(ctx context.Context, cfg Config) (sockets, error) {
	var s sockets
	var err error
	if s.healthz, err = bind(ctx, "--healthz-bind-address", cfg.HealthzAddress); err != nil {
		return sockets{}, err
	}
	if s.metrics, err = bind(ctx, "--metrics-bind-address", cfg.MetricsAddress); err != nil {
		s.close()
		return sockets{}, err
	}
	return s, nil
}

// errPortInUse is an error that goes when the other one does.
var errPortInUse = errors.New("the port is in use, by kube-proxy or another agent perhaps: stop that one, or choose another port")

func bind(ctx context.Context, flag, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s %s: %w", flag, address, errPortInUse)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", flag, address, err)
	}
	return l, nil
}

func (s sockets) close() {
	for _, l := range []net.Listener{s.healthz, s.metrics} {
		if l != nil {
			_ = l.Close()
		}
	}
}

func (s sockets) addresses() Addresses {
	var a Addresses
	if s.healthz != nil {
		a.Healthz = s.healthz.Addr()
	}
	if s.metrics != nil {
		a.Metrics = s.metrics.Addr()
	}
	return a
}

// probes answers those who ask whether this node forwards.
func (a agent) probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", counted(a.metrics.healthz, a.health.Healthz))
	// kube-proxy has no such path: while it still has the port, a kubelet does not take its answers for ours.
	mux.HandleFunc("/readyz", counted(a.metrics.healthz, a.health.Healthz))
	mux.HandleFunc("/livez", counted(a.metrics.live, a.health.Livez))
	return mux
}

// facts answers those who watch the agent.
func (a agent) facts(mode string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, mode) // a failed write is the asker's loss alone
	})
	return mux
}

// serve answers on both sockets until ctx ends.
func (s sockets) serve(ctx context.Context, group *errgroup.Group, probes, facts http.Handler) {
	for _, on := range []struct {
		listener net.Listener
		handler  http.Handler
	}{{s.healthz, probes}, {s.metrics, facts}} {
		if on.listener != nil {
			group.Go(func() error { return serveHTTP(ctx, on.listener, on.handler, writeTimeout) })
		}
	}
}

// serveHTTP serves until ctx ends; an answer takes the longest time at most.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, longest time.Duration) error {
	server := &http.Server{
		Handler: h, ReadTimeout: readTimeout, WriteTimeout: longest, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // what askers do wrong is theirs
	}
	release := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer release()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %v: %w", l.Addr(), err)
	}
	return nil
}
