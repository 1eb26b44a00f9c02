package healthcheck

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Limits of one healthCheckNodePort's server: whoever asks sends a line or two.
const (
	readTimeout = 5 * time.Second
	idleTimeout = 2 * time.Minute
	maxHeader   = 16 << 10
)

// reasonPortInUse is the Notice's reason for a port that cannot be bound; the name is kube-proxy's.
const reasonPortInUse = "FailedToStartServiceHealthcheck"

// Config of Services.
type Config struct {
	// Forwarding says whether the node's proxy is healthy: Health.Forwarding.
	Forwarding func() bool
	// Answers says whether a local address takes NodePorts; connections to others are closed without an answer. Nil takes
	// all. It is asked for every connection, so that the node's addresses may change.
	Answers func(netip.Addr) bool
}

// Services serves healthCheckNodePorts: one HTTP server per port, on all local addresses of both families. One goroutine
// calls Update and Close.
type Services struct {
	config  Config
	servers map[uint16]*server
}

// NewServices returns Services without any server.
func NewServices(c Config) *Services {
	if c.Answers == nil {
		c.Answers = func(netip.Addr) bool { return true }
	}
	return &Services{config: c, servers: map[uint16]*server{}}
}

// Update makes the servers those of want: others are closed, new ones opened, counts replaced. Ports that cannot be bound
// come back as Notices, in want's order, and are tried again by every Update; call it periodically. ctx limits the binding
// alone.
func (s *Services) Update(ctx context.Context, want []Port) []dataplane.Notice {
	wanted := map[uint16]Port{}
	for _, p := range want {
		wanted[p.NodePort] = p
	}
	for _, nodePort := range slices.Sorted(maps.Keys(s.servers)) {
		if _, ok := wanted[nodePort]; !ok {
			s.close(nodePort)
		}
	}
	var notices []dataplane.Notice
	for _, p := range want {
		if srv, ok := s.servers[p.NodePort]; ok {
			srv.set(p)
			continue
		}
		srv, err := s.open(ctx, p)
		if err != nil {
			notices = append(notices, dataplane.Notice{
				Namespace: p.Namespace, Name: p.Name, Reason: reasonPortInUse,
				Message: fmt.Sprintf("healthCheckNodePort %d cannot be served: %v; it is tried again", p.NodePort, err),
			})
			continue
		}
		s.servers[p.NodePort] = srv
	}
	return notices
}

// Close ends all servers.
func (s *Services) Close() {
	for _, nodePort := range slices.Sorted(maps.Keys(s.servers)) {
		s.close(nodePort)
	}
}

func (s *Services) close(nodePort uint16) {
	srv := s.servers[nodePort]
	_ = srv.http.Close()
	<-srv.done
	delete(s.servers, nodePort)
}

func (s *Services) open(ctx context.Context, p Port) (*server, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(int(p.NodePort))))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	srv := &server{forwarding: s.config.Forwarding, port: p, done: make(chan struct{})}
	srv.http = &http.Server{
		Handler: srv, ReadTimeout: readTimeout, WriteTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // what askers do wrong is theirs
	}
	go func() {
		defer close(srv.done)
		_ = srv.http.Serve(selective{Listener: l, answers: s.config.Answers}) // ends by Close
	}()
	return srv, nil
}

// server answers for one Service.
type server struct {
	http       *http.Server
	forwarding func() bool
	done       chan struct{} // closed when Serve has returned

	mu   sync.Mutex // guards port
	port Port
}

func (s *server) set(p Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.port = p
}

// serviceBody has the fields of kube-proxy's answer.
type serviceBody struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// ServeHTTP answers any path and method, for the family of the address that was asked: 200 iff the Service has ready
// endpoints here and the proxy is healthy. The header is the weight that a load balancer may
// give this node.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	p := s.port
	s.mu.Unlock()
	family := fwd.IPv4
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		family = fwd.FamilyOf(hostAddr(addr))
	}
	body := serviceBody{LocalEndpoints: p.LocalEndpoints[family], ServiceProxyHealthy: s.forwarding()}
	body.Service.Namespace, body.Service.Name = p.Namespace, p.Name
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(body.LocalEndpoints))
	writeJSON(w, body.LocalEndpoints > 0 && body.ServiceProxyHealthy, body)
}

// selective is a listener that closes connections to addresses which take no NodePorts.
type selective struct {
	net.Listener
	answers func(netip.Addr) bool
}

// Accept returns the next connection to an address that takes NodePorts.
func (s selective) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err //nolint:wrapcheck // net/http looks at it
		}
		if s.answers(hostAddr(conn.LocalAddr())) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// hostAddr is the plain address of a TCP end; a socket of both families shows IPv4 as mapped.
func hostAddr(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}
