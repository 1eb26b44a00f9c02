package workload

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// ServerConfig says what a server serves. An empty address leaves that protocol out.
type ServerConfig struct {
	Name string // goes first in every reply; the Pod's
	HTTP string // address to listen at, such as :8080
	TCP  string
	UDP  string
	// Drain is how long the server goes on after it was told to end, unready, while
	// the proxies learn of it. Zero ends at once, which a good Pod does not do.
	Drain time.Duration
	// Unready makes the server start unready.
	Unready bool
	// StayReady leaves the server ready while it drains: a Pod that ends but still serves.
	StayReady bool
}

// Serve answers until ctx ends, then for cfg.Drain more, and then lets the requests
// that are under way finish.
//
//   - HTTP: GET / gives "NAME CLIENT", /ready gives 200 or 503, POST
//     /admin/ready?value=true|false turns it, POST /admin/ask makes the server a
//     client: its body is an AskConfig, the answer a Sample a line. All else is 404.
//   - TCP: each line sent gives "NAME CLIENT LINE".
//   - UDP: each datagram gives "NAME CLIENT DATAGRAM".
//
// CLIENT is the peer's address and port as the server sees them.
func Serve(ctx context.Context, cfg ServerConfig, log *slog.Logger) error {
	s := &server{cfg: cfg, log: log}
	s.ready.Store(!cfg.Unready)
	parts := []func() (part, error){s.http, s.tcp, s.udp}
	var running []part
	for _, open := range parts {
		p, err := open()
		if err != nil {
			return errors.Join(err, closeAll(ctx, running))
		}
		if p.serve != nil {
			running = append(running, p)
		}
	}
	log.Info("serving", slog.String("name", cfg.Name), slog.Bool("ready", s.ready.Load()))
	group, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	for _, p := range running {
		group.Go(p.serve)
	}
	group.Go(func() error {
		s.drain(ctx, failed)
		return closeAll(context.WithoutCancel(ctx), running)
	})
	return group.Wait()
}

type server struct {
	cfg   ServerConfig
	log   *slog.Logger
	ready atomic.Bool
}

// part is one protocol: serve returns after close was called.
type part struct {
	serve func() error
	close func(context.Context) error
}

func closeAll(ctx context.Context, parts []part) error {
	var problems []error
	for _, p := range parts {
		problems = append(problems, p.close(ctx))
	}
	return errors.Join(problems...)
}

// drain returns once the server should stop: some time after ctx has ended, or at once
// when a protocol failed.
func (s *server) drain(ctx, failed context.Context) {
	select {
	case <-ctx.Done():
	case <-failed.Done():
		return
	}
	if !s.cfg.StayReady {
		s.ready.Store(false)
	}
	s.log.Info("draining", slog.String("name", s.cfg.Name), slog.Duration("for", s.cfg.Drain))
	timer := time.NewTimer(s.cfg.Drain)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-failed.Done():
	}
	s.log.Info("ending", slog.String("name", s.cfg.Name))
}

func (s *server) reply(client net.Addr) string { return s.cfg.Name + " " + client.String() }

func (s *server) http() (part, error) {
	if s.cfg.HTTP == "" {
		return part{}, nil
	}
	listener, err := net.Listen("tcp", s.cfg.HTTP)
	if err != nil {
		return part{}, fmt.Errorf("listen for HTTP: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s\n", s.cfg.Name, r.RemoteAddr)
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /admin/ready", s.turn)
	mux.HandleFunc("POST /admin/ask", s.ask)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return part{
		serve: func() error { return ignoreClosed(web.Serve(listener)) },
		close: func(ctx context.Context) error {
			// Long enough for what is under way, short enough for a Pod's grace period.
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if err := web.Shutdown(ctx); err != nil {
				return web.Close()
			}
			return nil
		},
	}, nil
}

func (s *server) turn(w http.ResponseWriter, r *http.Request) {
	value, err := strconv.ParseBool(r.URL.Query().Get("value"))
	if err != nil {
		http.Error(w, "value: give true or false", http.StatusBadRequest)
		return
	}
	s.ready.Store(value)
	s.log.Info("readiness turned", slog.String("name", s.cfg.Name), slog.Bool("ready", value))
}

func (s *server) tcp() (part, error) {
	if s.cfg.TCP == "" {
		return part{}, nil
	}
	listener, err := net.Listen("tcp", s.cfg.TCP)
	if err != nil {
		return part{}, fmt.Errorf("listen for TCP: %w", err)
	}
	return part{close: func(context.Context) error { return listener.Close() }, serve: func() error {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return ignoreClosed(err)
			}
			// Lives as long as the connection, at most as long as the process.
			go s.echo(conn)
		}
	}}, nil
}

func (s *server) echo(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if _, err := fmt.Fprintf(conn, "%s %s\n", s.reply(conn.RemoteAddr()), lines.Text()); err != nil {
			return
		}
	}
}

func (s *server) udp() (part, error) {
	if s.cfg.UDP == "" {
		return part{}, nil
	}
	conn, err := net.ListenPacket("udp", s.cfg.UDP)
	if err != nil {
		return part{}, fmt.Errorf("listen for UDP: %w", err)
	}
	return part{close: func(context.Context) error { return conn.Close() }, serve: func() error {
		datagram := make([]byte, 64<<10)
		for {
			n, client, err := conn.ReadFrom(datagram)
			if err != nil {
				return ignoreClosed(err)
			}
			// A client that is gone is not the server's trouble.
			_, _ = conn.WriteTo(append([]byte(s.reply(client)+" "), datagram[:n]...), client)
		}
	}}, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
