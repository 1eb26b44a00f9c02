package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/fairlead/fairlead/controller/internal/observe"
	"github.com/fairlead/fairlead/controller/internal/table"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// rig is a real gRPC server over a store, joined as app joins them.
type rig struct {
	t        testing.TB
	store    *table.Store
	observer *observe.Observer
	server   *Server
	grpc     *grpc.Server
	dial     func(...grpc.DialOption) *grpc.ClientConn
}

// transport makes a listener and the way to reach it.
type transport func(t testing.TB) (net.Listener, string, []grpc.DialOption)

func overMemory(testing.TB) (net.Listener, string, []grpc.DialOption) {
	l := bufconn.Listen(1 << 16)
	return l, "passthrough:memory", []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	}
}

func overTCP(t testing.TB) (net.Listener, string, []grpc.DialOption) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l, "passthrough:" + l.Addr().String(), nil
}

func newRig(t testing.TB, via transport, opts table.Options, adapt ...func(*Config)) *rig {
	t.Helper()
	return newRigOf(t, via, setup{store: opts, adapt: adapt})
}

// setup is what tests may change of a rig.
type setup struct {
	store  table.Options
	adapt  []func(*Config)
	server []grpc.ServerOption
}

func newRigOf(t testing.TB, via transport, with setup) *rig {
	t.Helper()
	r := &rig{t: t, store: table.NewStore(3, with.store)}
	var err error
	r.observer, err = observe.New(observe.Config{Tables: r.store, Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Epoch: r.store.Epoch, Version: "test",
		Follow:    func(node string, held *fairleadv1.Held) Follower { return r.store.Follow(node, held) },
		Synced:    func() bool { return true },
		Authorize: func(context.Context, string) error { return nil },
		Observe:   func(a Agent) Session { return r.observer.Connected(observe.Agent(a)) },
	}
	for _, f := range with.adapt {
		f(&cfg)
	}
	if r.server, err = NewServer(cfg); err != nil {
		t.Fatal(err)
	}
	r.grpc = grpc.NewServer(append(ServerOptions(), with.server...)...)
	fairleadv1.RegisterForwardingServer(r.grpc, r.server)
	listener, target, dialing := via(t)
	served := make(chan error, 1)
	go func() { served <- r.grpc.Serve(listener) }()
	t.Cleanup(func() {
		r.grpc.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serve: %v", err)
		}
	})
	r.dial = func(more ...grpc.DialOption) *grpc.ClientConn {
		options := slices.Concat([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, dialing, more)
		conn, err := grpc.NewClient(target, options...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	return r
}

func (r *rig) publish(updates ...fwd.Update) uint64 {
	now := time.Now()
	revision := r.store.Publish(updates, nil, now)
	r.observer.Published(revision, now)
	return revision
}

func (r *rig) wait(revision uint64) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.observer.Wait(ctx, revision); err != nil {
		r.t.Fatal(err)
	}
}

type followStream = grpc.BidiStreamingClient[fairleadv1.FollowRequest, fairleadv1.FollowResponse]

// open begins a stream without a word.
func (r *rig) open(conn *grpc.ClientConn) (followStream, context.CancelFunc) {
	r.t.Helper()
	return r.openWith(conn, nil)
}

// openWith does so with metadata.
func (r *rig) openWith(conn *grpc.ClientConn, md metadata.MD) (followStream, context.CancelFunc) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(context.Background(), md))
	r.t.Cleanup(cancel)
	s, err := fairleadv1.NewForwardingClient(conn).Follow(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return s, cancel
}

func helloOf(node string, held *fairleadv1.Held) *fairleadv1.FollowRequest {
	return &fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Hello{Hello: &fairleadv1.Hello{
		Role: fairleadv1.Hello_ROLE_AGENT, Node: node, Version: "test", Mode: "iptables", Held: held,
	}}}
}

func reportOf(r *fairleadv1.Report) *fairleadv1.FollowRequest {
	return &fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Report{Report: r}}
}

// agent is a plain protobuf client that assembles its table and reports.
type agent struct {
	node string
	md   metadata.MD // of its streams
	// buckets: it answers questions; asked is how many came.
	buckets bool
	cancel  context.CancelFunc
	stream  followStream
	// ended gets the error that ended the stream.
	ended chan error

	mu         sync.Mutex // guards the rest
	table      *fwd.Table
	revisions  int
	asked      int
	rows       int
	heartbeats []*fairleadv1.Heartbeat
	problem    error
}

func (r *rig) agent(node string) *agent {
	r.t.Helper()
	a := &agent{node: node, table: &fwd.Table{}}
	a.connect(r)
	return a
}

// connect says hello with what is held, and follows.
func (a *agent) connect(r *rig) {
	r.t.Helper()
	a.ended = make(chan error, 1)
	a.stream, a.cancel = r.openWith(r.dial(), a.md)
	if err := a.stream.Send(helloOf(a.node, a.held())); err != nil && !errors.Is(err, io.EOF) { // Recv tells why it ended
		r.t.Fatal(err)
	}
	go func() { a.ended <- a.follow() }()
}

func (a *agent) held() *fairleadv1.Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &fairleadv1.Held{
		CommonDigest: a.table.Part(fwd.Common).Digest(),
		ZoneDigest:   a.table.Part(fwd.Zone).Digest(),
		NodeDigest:   a.table.Part(fwd.Node).Digest(),
		Buckets:      a.buckets,
	}
}

func (a *agent) answer(q *fairleadv1.Question) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	answer, err := a.table.Answer(q)
	if err != nil {
		return err
	}
	return a.stream.Send(answerOf(answer))
}

func answerOf(a *fairleadv1.Answer) *fairleadv1.FollowRequest {
	return &fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Answer{Answer: a}}
}

func (a *agent) follow() error {
	var change fwd.Change
	epoch := uint64(0)
	for {
		m, err := a.stream.Recv()
		if err != nil {
			return err
		}
		switch {
		case m.GetWelcome() != nil:
			epoch = m.GetWelcome().GetEpoch()
		case m.GetHeartbeat() != nil:
			a.heartbeat(m.GetHeartbeat())
		case m.GetQuestion() != nil:
			if err := a.answer(m.GetQuestion()); err != nil {
				return err
			}
		default:
			change.Append(fwd.ChangeFromProto(m.GetRevision()))
			if m.GetRevision().GetMore() {
				continue
			}
			if err := a.apply(change); err != nil {
				return err
			}
			change = fwd.Change{}
			report := reportOf(&fairleadv1.Report{Epoch: epoch, Number: m.GetRevision().GetNumber()})
			if err := a.stream.Send(report); err != nil && !errors.Is(err, io.EOF) { // Recv tells why it ended
				return err
			}
		}
	}
}

func (a *agent) apply(c fwd.Change) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	next, _, err := a.table.Apply(c)
	if err != nil {
		a.problem = err
		return err
	}
	a.table = next
	a.revisions++
	for _, p := range c.Parts {
		if p != nil {
			a.rows += len(p.Put) + len(p.Remove)
		}
	}
	return nil
}

func (a *agent) heartbeat(h *fairleadv1.Heartbeat) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.table.Digest(); d != h.GetDigest() {
		a.problem = errors.New("heartbeat announces another digest")
	}
	a.heartbeats = append(a.heartbeats, h)
}

// wait returns the error that the stream ended with.
func (a *agent) wait() error { return <-a.ended }

// close ends the stream and waits for it.
func (a *agent) close() {
	a.cancel()
	_ = a.wait()
}

func (a *agent) matches(store *table.Store) bool {
	want, _, err := store.Table(a.node)
	a.mu.Lock()
	defer a.mu.Unlock()
	return err == nil && a.table.Digest() == want.Digest()
}

func (a *agent) check(t testing.TB, store *table.Store) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.problem != nil {
		t.Errorf("agent %s: %v", a.node, a.problem)
	}
	want, _, err := store.Table(a.node)
	if err != nil {
		t.Fatal(err)
	}
	if a.table.Digest() != want.Digest() || a.table.Len() != want.Len() {
		t.Errorf("agent %s: digest %x of %d rows, want %x of %d", a.node, a.table.Digest(), a.table.Len(), want.Digest(), want.Len())
	}
}

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !condition() {
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// noneLeft holds that no goroutine of this package or of the transport outlives its server. Call it first in a test: it runs
// after all other clean-ups.
func noneLeft(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		buf := make([]byte, 1<<20)
		eventually(t, "all goroutines of the streams end", func() bool {
			stacks := string(buf[:runtime.Stack(buf, true)])
			return !strings.Contains(stacks, "stream.receive(") && !strings.Contains(stacks, "(*session)") &&
				!strings.Contains(stacks, "(*agent).follow") && !strings.Contains(stacks, "internal/transport")
		})
	})
}
