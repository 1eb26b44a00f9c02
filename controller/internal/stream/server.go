package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Follower is a position in a table store. Its methods do not block.
type Follower interface {
	// Changed delivers a value when Next has something, the first one at once.
	Changed() <-chan struct{}
	// Question is what to ask before the first Next, so that it carries less; nil is nothing. Answer takes what comes back.
	Question() *fairleadv1.Question
	Answer(*fairleadv1.Answer)
	// NeedsSnapshot reports whether the first Next carries most of a table, as far as that is known before the Answer.
	NeedsSnapshot() bool
	// Next returns the messages of one revision, each an encoded FollowResponse in shared slices, and when its oldest
	// change was heard of (zero: unknown). None: nothing has changed.
	Next() (messages [][][]byte, cause time.Time)
	// Position: all that concerns the follower up to revision through has been taken, the last of it numbered last.
	Position() (through, last uint64)
	// Heartbeat is the content of a Heartbeat.
	Heartbeat() (number, digest uint64)
	Close()
}

// Agent describes the other end of a stream.
type Agent struct {
	Node, Version, Mode, Remote string
	// Sequence grows with each accepted stream: of two streams of one node, the higher is the newer.
	Sequence uint64
	// Position is the one of its Follower.
	Position func() (through, last uint64)
}

// Session hears what becomes of one stream. Its methods are called by two goroutines at once, and must not block.
type Session interface {
	// Sent: the revision is on its way. cause is zero where none is known.
	Sent(number uint64, cause time.Time)
	// Applied: the agent's kernel holds the revision, after programming it for took.
	Applied(number uint64, took time.Duration)
	// Failed: the agent's kernel refused the revision.
	Failed(number uint64, reason string)
	// Closed comes at the end, though a report may cross it; err says why, nil when the agent closed the stream.
	Closed(err error)
}

// Config of a Server. Epoch, Follow, Synced, Authorize and Observe are required.
type Config struct {
	// Epoch of the revisions of now, which only grows; Version of this software, for people.
	Epoch   func() uint64
	Version string
	// Follow starts to follow a node's table from what an agent holds (nil: nothing).
	Follow func(node string, held *fairleadv1.Held) Follower
	// FollowAll does so for a replica, which takes all tables, if AuthorizeReplica lets the caller; an error is a gRPC status,
	// such as that this replica does not lead. Where FollowAll is nil, replicas are refused.
	FollowAll        func(held *fairleadv1.Held) (Follower, error)
	AuthorizeReplica func(ctx context.Context) error
	// Behind reports whether an agent holds a newer table than there is here: it is told to come back, or to go elsewhere, so
	// that no table goes back in time. nil is never.
	Behind func(held *fairleadv1.Held) bool
	// Synced says whether the tables are complete. Before that, agents are told to come back.
	Synced func() bool
	// Nodes is how many agents there may be, all replicas' together; nil keeps Balance from doing anything.
	Nodes func() int
	// Authorize says whether the caller, whose credentials are in ctx, may have the table of a node and report for it. An
	// error that is a gRPC status is the answer as it is, another one is PERMISSION_DENIED.
	Authorize func(ctx context.Context, node string) error
	// Admitted is told the address of each caller that Authorize let in; nil is fine. A Guard wants to know.
	Admitted func(remote net.Addr)
	// Refused is told of each caller that Authorize did not let in, or whose hello was none; nil is fine.
	Refused func(remote net.Addr, err error, about ...slog.Attr)
	// Observe is told of every stream that was accepted.
	Observe func(Agent) Session
	// Notice takes the facts that agents report for others to read; nil drops them. It must not block.
	Notice func(node string, n *fairleadv1.Notice)
	// Heartbeat is the interval between heartbeats. Default 10 s.
	Heartbeat time.Duration
	// HelloTimeout is how long a stream may be silent at first. Default 10 s.
	HelloTimeout time.Duration
	// SnapshotsPerSecond and SnapshotBurst bound how many agents are given a whole table: those above wait for up to
	// AdmissionWait, and are told to come back when it would take longer. Defaults: 500, 1000, 2 s.
	SnapshotsPerSecond float64
	SnapshotBurst      int
	AdmissionWait      time.Duration
	// DrainSpread is the time over which Drain spreads the ends of streams. Default 1 s.
	DrainSpread time.Duration
	// Log takes one line for each stream that begins or ends; nil is no log.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	orDefault(&c.Heartbeat, 10*time.Second)
	orDefault(&c.HelloTimeout, 10*time.Second)
	orDefault(&c.SnapshotsPerSecond, 500)
	orDefault(&c.SnapshotBurst, 1000)
	orDefault(&c.AdmissionWait, 2*time.Second)
	orDefault(&c.DrainSpread, time.Second)
	if c.Admitted == nil {
		c.Admitted = func(net.Addr) {}
	}
	if c.Behind == nil {
		c.Behind = func(*fairleadv1.Held) bool { return false }
	}
	if c.Refused == nil {
		c.Refused = func(net.Addr, error, ...slog.Attr) {}
	}
	if c.Notice == nil {
		c.Notice = func(string, *fairleadv1.Notice) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T int | float64 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

func (c Config) validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"Epoch", c.Epoch != nil},
		{"Follow", c.Follow != nil},
		{"Synced", c.Synced != nil},
		{"Authorize", c.Authorize != nil},
		{"Observe", c.Observe != nil},
		{"AuthorizeReplica", c.FollowAll == nil || c.AuthorizeReplica != nil},
	} {
		if !f.given {
			errs = append(errs, fmt.Errorf("stream config: %s is required", f.name))
		}
	}
	return errors.Join(errs...)
}

// Server implements fairlead.v1.Forwarding. It needs a grpc.Server made with ServerOptions.
type Server struct {
	fairleadv1.UnimplementedForwardingServer

	cfg       Config
	snapshots *rate.Limiter
	// controllers are the replicas that serve agents; nil if they are not known.
	controllers atomic.Pointer[[]string]

	mu sync.Mutex // guards the rest
	// live holds the stream of each node, and of each replica, by a key that no node has.
	live map[string]*session
	// accepted counts the streams that were registered.
	accepted uint64
	balance  balance
	// handlers counts running calls of Follow; idle is closed when Drain was called and there are none.
	handlers int
	draining bool
	drain    chan struct{} // closed by Drain
	idle     chan struct{}
}

// NewServer returns a Server, or says what the Config lacks.
func NewServer(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Server{
		cfg:       cfg,
		snapshots: rate.NewLimiter(rate.Limit(cfg.SnapshotsPerSecond), cfg.SnapshotBurst),
		live:      map[string]*session{},
		drain:     make(chan struct{}),
		idle:      make(chan struct{}),
	}, nil
}

// SetControllers says which replicas serve agents: host:port, sorted. Agents hear of it with their Welcome, and those that
// are connected with their next Heartbeat.
func (s *Server) SetControllers(addresses []string) {
	addresses = slices.Clone(addresses)
	s.controllers.Store(&addresses)
}

// Follow implements fairleadv1.ForwardingServer.
func (s *Server) Follow(stream grpc.BidiStreamingServer[fairleadv1.FollowRequest, fairleadv1.FollowResponse]) error {
	if !s.enter() {
		return errDraining()
	}
	defer s.leave()
	if !s.cfg.Synced() {
		return status.Error(codes.Unavailable, "this replica has not yet seen the whole cluster")
	}
	ctx := stream.Context()
	hello, err := receiveHello(stream, s.cfg.HelloTimeout, s.drain)
	if err != nil {
		if p, known := peer.FromContext(ctx); known && status.Code(err) == codes.InvalidArgument {
			s.cfg.Refused(p.Addr, err)
		}
		return err
	}
	if err := s.authorize(ctx, hello); err != nil {
		return err
	}
	follower, err := s.follow(hello)
	if err != nil {
		return err
	}
	defer follower.Close()
	if follower.NeedsSnapshot() {
		if err := s.admit(ctx); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil { // it must not take over from a newer stream
		return status.FromContextError(err).Err()
	}
	return s.serve(stream, hello, follower)
}

// follow begins where the caller stands.
func (s *Server) follow(hello *fairleadv1.Hello) (Follower, error) {
	if isReplica(hello) {
		return s.cfg.FollowAll(hello.GetHeld())
	}
	if s.turnsAway(hello.GetNode(), time.Now()) {
		return nil, errElsewhere()
	}
	if s.cfg.Behind(hello.GetHeld()) {
		return nil, status.Error(codes.Unavailable, "this replica is behind what the agent holds: try another one")
	}
	return s.cfg.Follow(hello.GetNode(), hello.GetHeld()), nil
}

// authorize returns the status that a caller gets who may not have a node's table, or all of them.
func (s *Server) authorize(ctx context.Context, hello *fairleadv1.Hello) error {
	node := hello.GetNode()
	var err error
	switch {
	case !isReplica(hello):
		err = s.cfg.Authorize(ctx, node)
	case s.cfg.FollowAll == nil:
		err = status.Error(codes.Unimplemented, "replicas are not served here")
	default:
		err = s.cfg.AuthorizeReplica(ctx)
	}
	p, known := peer.FromContext(ctx)
	if err == nil {
		if known {
			s.cfg.Admitted(p.Addr)
		}
		return nil
	}
	if _, isStatus := status.FromError(err); !isStatus {
		err = status.Errorf(codes.PermissionDenied, "node %q: %v", node, err)
	}
	if known {
		s.cfg.Refused(p.Addr, err, slog.String("node", node))
	}
	return err
}

// serve runs an accepted stream.
func (s *Server) serve(stream grpc.ServerStream, hello *fairleadv1.Hello, f Follower) error {
	run := &session{
		server: s, stream: stream, node: hello.GetNode(), replica: isReplica(hello), follower: f, stop: make(chan error, stopReasons),
		since: time.Now(), question: f.Question(), answers: make(chan *fairleadv1.Answer, 1),
	}
	agent := Agent{
		Node: run.node, Version: hello.GetVersion(), Mode: hello.GetMode(), Sequence: s.register(run), Position: f.Position,
	}
	defer s.unregister(run)
	if p, ok := peer.FromContext(stream.Context()); ok {
		agent.Remote = p.Addr.String()
	}
	if run.replica {
		return s.serveReplica(run, agent.Remote)
	}
	log := s.cfg.Log.With(slog.String("node", agent.Node), slog.String("remote", agent.Remote))
	log.Info("agent connected", slog.String("agent_version", agent.Version), slog.String("mode", agent.Mode))
	run.observer = s.cfg.Observe(agent)
	err := run.loop()
	run.observer.Closed(err)
	log.Info("agent disconnected", slog.Any("cause", err))
	return err
}

// register makes a stream the live one of its node, ends the one before, and returns the stream's sequence number.
func (s *Server) register(run *session) uint64 {
	s.mu.Lock()
	s.accepted++
	sequence, before, draining := s.accepted, s.live[run.key()], s.draining
	s.live[run.key()] = run
	s.mu.Unlock()
	if before != nil {
		before.stop <- status.Errorf(codes.Aborted, "a newer stream of node %q took over: if this goes on, another agent has the same --node-name", run.node)
	}
	if draining {
		run.stop <- errDraining()
	}
	return sequence
}

func (s *Server) unregister(run *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[run.key()] == run {
		delete(s.live, run.key())
	}
}

// enter counts a handler in, unless the server drains.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.handlers++
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers--
	if s.draining && s.handlers == 0 {
		close(s.idle)
	}
}

// Drain refuses new streams, ends the others with UNAVAILABLE one by one over Config.DrainSpread, so that agents do not all
// look for another replica at once, and waits for their end or that of ctx. Streams of agents that do not read are left to
// grpc.Server.Stop. A second call only waits.
func (s *Server) Drain(ctx context.Context) error {
	runs := s.startDrain()
	pace := time.NewTicker(s.cfg.DrainSpread/time.Duration(len(runs)+1) + 1)
	defer pace.Stop()
	for _, run := range runs {
		run.stop <- errDraining() // room for it: does not block
		select {
		case <-pace.C:
		case <-ctx.Done(): // the rest at once
		}
	}
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain streams: %w", ctx.Err())
	}
}

// startDrain closes the door and returns the live streams in random order; none if that was done before.
func (s *Server) startDrain() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return nil
	}
	s.draining = true
	close(s.drain)
	if s.handlers == 0 {
		close(s.idle)
	}
	runs := make([]*session, 0, len(s.live))
	for _, run := range s.live {
		runs = append(runs, run)
	}
	return runs
}

func errDraining() error {
	return status.Error(codes.Unavailable, "this replica drains: try another one")
}

// randomly returns a duration between 0 and d.
func randomly(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d) + 1)) }
