package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/controller/internal/stream"
	"github.com/fairlead/fairlead/controller/internal/table"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// leader is a real server of a store.
type leader struct {
	store   *table.Store
	server  *stream.Server
	address string
	// sent are the bytes of all revisions.
	sent atomic.Int64
}

// counted is a Follower whose messages are counted.
type counted struct {
	stream.Follower
	sent *atomic.Int64
}

func (c counted) Next() ([][][]byte, time.Time) {
	messages, cause := c.Follower.Next()
	for _, m := range messages {
		for _, b := range m {
			c.sent.Add(int64(len(b)))
		}
	}
	return messages, cause
}

func lead(t *testing.T, epoch uint64) *leader {
	t.Helper()
	l := &leader{store: table.NewStore(epoch, table.Options{MessageBytes: 2 << 10})}
	var err error
	l.server, err = stream.NewServer(stream.Config{
		Epoch: l.store.Epoch, Version: "test", Heartbeat: time.Second,
		Follow: func(node string, held *fairleadv1.Held) stream.Follower { return l.store.Follow(node, held) },
		FollowAll: func(held *fairleadv1.Held) (stream.Follower, error) {
			return counted{l.store.FollowAll(held), &l.sent}, nil
		},
		AuthorizeReplica: func(context.Context) error { return nil },
		Synced:           func() bool { return true },
		Authorize:        func(context.Context, string) error { return nil },
		Observe:          func(stream.Agent) stream.Session { panic("a replica is no agent") },
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.address = listener.Addr().String()
	server := grpc.NewServer(stream.ServerOptions()...)
	fairleadv1.RegisterForwardingServer(server, l.server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return l
}

// backends publishes so many of one Service port.
func (l *leader) backends(n int) {
	u := fwd.Update{}
	for i := range n {
		u.Put = append(u.Put, fwd.Row{Key: fmt.Sprintf("\x63%04d", i), Value: "v"})
	}
	l.store.Publish([]fwd.Update{u}, []table.NodeZone{{Node: "n1", Zone: "a"}}, time.Now())
}

// replica is a Mirror with its store.
type replica struct {
	*Mirror
	store *table.Store
	log   *logs
	stop  func()
}

// logs is a log that can be read while it is written.
type logs struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func start(t *testing.T) *replica {
	t.Helper()
	r := &replica{store: table.NewStore(0, table.Options{}), log: &logs{}}
	r.Mirror = New(Config{
		Self: "10.0.0.9:7443", Version: "test", Store: r.store, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		Credentials: func() (credentials.TransportCredentials, error) { return insecure.NewCredentials(), nil },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	r.stop = func() { cancel(); <-done }
	t.Cleanup(r.stop)
	return r
}

func (r *replica) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline:
			t.Fatalf("%s: never; log:\n%s", what, r.log)
		}
	}
}

// same waits until the replica has all that a leader has.
func (r *replica) same(t *testing.T, l *leader) {
	t.Helper()
	r.until(t, "the leader's tables", func() bool {
		return r.store.Digest() == l.store.Digest() && r.store.Epoch() == l.store.Epoch() && r.store.Revision() == l.store.Revision()
	})
}

// TestFollow: all tables come, in pieces, and then each change; another leader is followed from what is held, and an earlier
// one, or one that is no leader, changes nothing.
func TestFollow(t *testing.T) {
	first, second := lead(t, 5), lead(t, 6)
	first.backends(500)
	second.backends(501)
	r := start(t)
	r.SetLeader(first.address)
	r.same(t, first)
	if got := r.store.Nodes(); len(got) != 1 {
		t.Errorf("nodes %v", got)
	}
	first.backends(510)
	r.same(t, first)

	r.SetLeader(second.address)
	r.same(t, second)
	digest := r.store.Digest()
	r.SetLeader(first.address)
	r.until(t, "refusal", func() bool { return strings.Contains(r.log.String(), "a newer epoch has begun") })
	if r.store.Digest() != digest || r.store.Epoch() != 6 {
		t.Error("an earlier leader was believed")
	}
	r.SetLeader("")
	r.SetLeader(second.address)
	second.backends(600)
	r.same(t, second)
}

// TestUnknownVersion: a leader that began anew, with some rows more and some less, sends the buckets that differ; to one that
// was found to differ it sends all.
func TestUnknownVersion(t *testing.T) {
	first, second := lead(t, 5), lead(t, 6)
	first.backends(5000)
	second.backends(5003)
	second.store.Publish([]fwd.Update{{Remove: []string{"\x630007"}}}, nil, time.Now())
	r := start(t)
	r.SetLeader(first.address)
	r.same(t, first)
	r.SetLeader(second.address)
	r.same(t, second)
	if whole, now := first.sent.Load(), second.sent.Load(); now > whole/10 {
		t.Errorf("%d bytes, %d for a replica that held nothing", now, whole)
	}
	second.backends(5010) // differences follow
	r.same(t, second)
}

// TestEndOfTerm: a leader that ends the streams of its replicas is asked again.
func TestEndOfTerm(t *testing.T) {
	l := lead(t, 5)
	l.backends(10)
	r := start(t)
	r.SetLeader(l.address)
	r.same(t, l)
	l.server.EndReplicas()
	r.until(t, "the end of the stream", func() bool { return strings.Contains(r.log.String(), "does not lead") })
	l.backends(11)
	r.same(t, l)
}

// mailbox takes what a session says.
type mailbox struct{ messages []*fairleadv1.FollowRequest }

func (m *mailbox) Send(r *fairleadv1.FollowRequest) error {
	m.messages = append(m.messages, r)
	return nil
}

// TestBadStreams: what a leader may not say ends the stream and changes nothing.
func TestBadStreams(t *testing.T) {
	welcome := &fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{Epoch: 7, HeartbeatIntervalMs: 1000}}}
	revision := func(r *fairleadv1.Revision) *fairleadv1.FollowResponse {
		return &fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Revision{Revision: r}}
	}
	beat := func(h *fairleadv1.Heartbeat) *fairleadv1.FollowResponse {
		return &fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Heartbeat{Heartbeat: h}}
	}
	ask := func(bits uint32) *fairleadv1.FollowResponse {
		return &fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Question{Question: &fairleadv1.Question{CommonBits: bits}}}
	}
	whole := revision(&fairleadv1.Revision{Number: 3, Whole: true})
	for name, c := range map[string]struct {
		messages []*fairleadv1.FollowResponse
		want     error
	}{
		"no welcome":        {[]*fairleadv1.FollowResponse{whole}, fwd.ErrMalformed},
		"two welcomes":      {[]*fairleadv1.FollowResponse{welcome, welcome}, fwd.ErrMalformed},
		"no beat":           {[]*fairleadv1.FollowResponse{{Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{Epoch: 7}}}}, fwd.ErrMalformed},
		"not whole":         {[]*fairleadv1.FollowResponse{welcome, revision(&fairleadv1.Revision{Number: 3})}, fwd.ErrMalformed},
		"whole twice":       {[]*fairleadv1.FollowResponse{welcome, whole, whole}, fwd.ErrMalformed},
		"digest":            {[]*fairleadv1.FollowResponse{welcome, whole, beat(&fairleadv1.Heartbeat{Digest: 1})}, fwd.ErrDigest},
		"older epoch":       {[]*fairleadv1.FollowResponse{welcome, whole, beat(&fairleadv1.Heartbeat{Epoch: 6})}, table.ErrFenced},
		"number goes back":  {[]*fairleadv1.FollowResponse{welcome, whole, revision(&fairleadv1.Revision{Number: 2})}, table.ErrOrder},
		"unknown row":       {[]*fairleadv1.FollowResponse{welcome, whole, revision(&fairleadv1.Revision{Number: 4, Audiences: []*fairleadv1.Audience{{Common: &fairleadv1.Part{Remove: [][]byte{{9}}}}}})}, fwd.ErrMalformed},
		"nothing is wrong":  {[]*fairleadv1.FollowResponse{welcome, whole, beat(&fairleadv1.Heartbeat{Epoch: 8}), {}}, nil},
		"asked twice":       {[]*fairleadv1.FollowResponse{welcome, ask(0), ask(0)}, fwd.ErrMalformed},
		"asked too much":    {[]*fairleadv1.FollowResponse{welcome, ask(14)}, fwd.ErrMalformed},
		"asked too late":    {[]*fairleadv1.FollowResponse{welcome, whole, ask(3)}, fwd.ErrMalformed},
		"no bucket":         {[]*fairleadv1.FollowResponse{welcome, revision(&fairleadv1.Revision{Number: 3, Whole: true, Audiences: []*fairleadv1.Audience{{Common: &fairleadv1.Part{ReplaceBuckets: []uint32{0}}}}})}, fwd.ErrMalformed},
		"pieces of another": {[]*fairleadv1.FollowResponse{welcome, revision(&fairleadv1.Revision{Number: 3, Whole: true, More: true}), revision(&fairleadv1.Revision{Number: 4, Whole: true})}, fwd.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			store := table.NewStore(7, table.Options{})
			s := &session{mirror: New(Config{Store: store, Logger: slog.New(slog.DiscardHandler)}), to: &mailbox{}}
			var err error
			for _, m := range c.messages {
				if err == nil {
					err = s.handle(m)
				}
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if store.Digest() != 0 {
				t.Error("the store changed")
			}
		})
	}
}
