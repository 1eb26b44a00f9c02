package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/test/scale/swarm"
	"github.com/fairlead/fairlead/test/scale/watchers"
	"github.com/fairlead/fairlead/test/scenario/child"
)

const (
	patience = 2 * time.Minute
	lookEach = 20 * time.Millisecond
)

// Herd is a child process with many clients.
type Herd struct {
	*child.Child
	client *http.Client
}

// start starts this program as a child; socket is where it will answer.
func (s *Stage) start(role string, socket string, cfg any) (*Herd, error) {
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	path := socket + ".json"
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	c, err := child.Start(child.Config{Name: role, Log: socket + ".log", Argv: []string{self}, Env: []string{childRole + "=" + role + ":" + path}})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	var d net.Dialer
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) }}
	return &Herd{Child: c, client: &http.Client{Transport: transport}}, nil
}

func (s *Stage) socket() string {
	s.serial++
	return filepath.Join(s.cfg.Dir, fmt.Sprintf("herd-%d", s.serial))
}

// Tokens asks for the tokens of the first agents, as their kubelets would before they start; without TLS there are none.
func (s *Stage) Tokens(ctx context.Context, agents int) error {
	if s.cfg.Insecure {
		return nil
	}
	tokens := make([]string, agents)
	err := each(ctx, agents, func(ctx context.Context, i int) (err error) {
		tokens[i], err = s.token(ctx, Node(i))
		return err
	})
	for i, token := range tokens {
		s.tokens[Node(i)] = token
	}
	return err
}

// StartSwarm starts agents of the Nodes from first on, as many as given, in one process, with the tokens that Tokens got.
// cfg's Agents, CA and Socket are filled in. Waiting for them to connect is the caller's.
func (s *Stage) StartSwarm(ctx context.Context, first, agents int, cfg swarm.Config) (*Herd, error) {
	var err error
	if cfg.CA, err = s.bundle(ctx); err != nil {
		return nil, err
	}
	for i := range agents {
		cfg.Agents = append(cfg.Agents, swarm.Agent{Node: Node(first + i), Token: s.tokens[Node(first+i)]})
	}
	cfg.Socket = s.socket()
	return s.start("swarm", cfg.Socket, cfg)
}

// StartWatchers starts as many kube-proxies' watches in one process; they belong to the Nodes from first on.
func (s *Stage) StartWatchers(first, n int) (*Herd, error) {
	cfg := watchers.Config{Socket: s.socket(), Kubeconfig: s.admin}
	for i := range n {
		cfg.Nodes = append(cfg.Nodes, Node(first+i))
	}
	return s.start("watchers", cfg.Socket, cfg)
}

// Ask gets what a child answers at a path.
func (h *Herd) Ask(ctx context.Context, path string, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://herd"+path, nil)
	if err != nil {
		return fmt.Errorf("ask child: %w", err)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask child: %w", err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		return fmt.Errorf("ask child: %w", err)
	}
	return nil
}

// Until returns when ok returns nil, or with its last error when it takes too long.
func Until(ctx context.Context, what string, ok func() error) error {
	return UntilWithin(ctx, patience, what, ok)
}

// UntilWithin is Until with a time of its own.
func UntilWithin(ctx context.Context, within time.Duration, what string, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ticker := time.NewTicker(lookEach)
	defer ticker.Stop()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, err)
		case <-ticker.C:
		}
	}
}
