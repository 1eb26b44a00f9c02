package swarm

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/scale/meter"
)

// Swarm is the agents of one process.
type Swarm struct {
	cfg           Config
	creds         credentials.TransportCredentials
	clock, steady fwd.ID
	agents        []*agent
	progress      progress

	streams, questions, revisions, messageBytes, lastCurrent atomic.Int64
	backwards, emptied, refused                              atomic.Int64

	mu       sync.Mutex // guards failures
	failures map[string]int
}

// Main runs the agents of the configuration in a file until ctx ends.
func Main(ctx context.Context, path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // the parent process names it
	if err != nil {
		return fmt.Errorf("read swarm's configuration: %w", err)
	}
	var cfg Config
	if err := json.Unmarshal(text, &cfg); err != nil {
		return fmt.Errorf("read swarm's configuration: %w", err)
	}
	s, err := newSwarm(cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", cfg.Socket)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+StatePath, func(w http.ResponseWriter, _ *http.Request) { answer(w, s.state()) })
	mux.HandleFunc("GET "+TablesPath, func(w http.ResponseWriter, _ *http.Request) { answer(w, s.tables()) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	for _, a := range s.agents {
		go a.run(ctx)
	}
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func answer(w http.ResponseWriter, what any) {
	if err := json.NewEncoder(w).Encode(what); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func newSwarm(cfg Config) (*Swarm, error) {
	s := &Swarm{cfg: cfg, creds: insecure.NewCredentials(), failures: map[string]int{}}
	s.progress.at = make([]position, len(cfg.Agents))
	for name, to := range map[string]*fwd.ID{cfg.Clock: &s.clock, cfg.Steady: &s.steady} {
		if name == "" {
			continue
		}
		port, err := fwd.ParsePortName(name)
		if err != nil {
			return nil, fmt.Errorf("service port %q: %w", name, err)
		}
		*to = port.ID()
	}
	if cfg.CA != "" {
		bundle, err := os.ReadFile(cfg.CA)
		if err != nil {
			return nil, fmt.Errorf("read CA bundle: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("read CA bundle: no certificate in %s", cfg.CA)
		}
		s.creds = credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "fairlead-controller", MinVersion: tls.VersionTLS13})
	}
	for i, a := range cfg.Agents {
		s.agents = append(s.agents, &agent{swarm: s, index: i, Agent: a, table: &fwd.Table{}})
	}
	return s, nil
}

func (s *Swarm) becameCurrent(now int64) {
	for last := s.lastCurrent.Load(); last < now && !s.lastCurrent.CompareAndSwap(last, now); last = s.lastCurrent.Load() {
	}
}

// ended counts why a stream ended.
func (s *Swarm) ended(err error) {
	if errors.Is(err, fwd.ErrDigest) || errors.Is(err, fwd.ErrMalformed) {
		s.refused.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[address.ReplaceAllString(err.Error(), "")]++
}

// address is what makes the same failures differ.
var address = regexp.MustCompile(` ?[0-9.]+:[0-9]+(->[0-9.]+:[0-9]+)?`)

func (s *Swarm) state() State {
	st := State{
		Agents: len(s.agents), Streams: s.streams.Load(), Questions: s.questions.Load(), Revisions: s.revisions.Load(), MessageBytes: s.messageBytes.Load(),
		LastCurrent: s.lastCurrent.Load(), Backwards: s.backwards.Load(), Emptied: s.emptied.Load(), Refused: s.refused.Load(),
		Failures: map[string]int{}, Applied: s.progress.take(),
	}
	for _, a := range s.agents {
		a.mu.Lock()
		connected, current, conn := a.connected, a.current, a.conn
		a.mu.Unlock()
		if connected {
			st.Connected++
		}
		if current {
			st.Current++
		}
		st.WireBytes += meter.Received(conn)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for text, n := range s.failures {
		st.Failures[text] = n
	}
	return st
}

func (s *Swarm) tables() map[string]Held {
	all := map[string]Held{}
	for _, a := range s.agents {
		all[a.Node] = a.held()
	}
	return all
}
