package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/controller/internal/table"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Store takes what the leader says.
type Store interface {
	// Epoch, Revision, CommonDigest and Digest are of what is held.
	Epoch() uint64
	Revision() uint64
	CommonDigest() uint64
	Digest() uint64
	// Answer is what a follower that holds the common part answers to a leader's question; it fails with fwd.ErrMalformed.
	Answer(q *fairleadv1.Question) (*fairleadv1.Answer, error)
	// Adopt makes a revision one's own, or fails and changes nothing.
	Adopt(step table.Step) error
}

// Config of a Mirror. All fields are required.
type Config struct {
	// Self is where this replica serves agents.
	Self, Version string
	// Credentials are asked for at each dial, so that they may change.
	Credentials func() (credentials.TransportCredentials, error)
	Store       Store
	Logger      *slog.Logger
}

// Mirror follows one leader after the other. SetLeader may be called from any goroutine; Run is called once.
type Mirror struct {
	cfg Config
	// leaders holds the newest address that was not taken yet.
	leaders chan string
	// forget: what is held was found to differ, and is not told to the leader.
	forget bool
	// said is the last failure that was logged since a leader answered.
	said string
}

const (
	retryBase = 50 * time.Millisecond
	retryMax  = 2 * time.Second
	// handshakeWithin bounds dialing and the wait for the Welcome.
	handshakeWithin = 10 * time.Second
	keepAlive       = 10 * time.Second
	silentBeats     = 3
	// messageBytes bounds a message; leaders send at most 256 KiB and one row more.
	messageBytes = 4 << 20
	// windowBytes is how much a leader may send ahead of the reading.
	windowBytes = 4 << 20
)

// New returns a Mirror without a leader.
func New(cfg Config) *Mirror { return &Mirror{cfg: cfg, leaders: make(chan string, 1)} }

// SetLeader says where the leader serves; "" is that there is none, or that it is this replica. It never blocks. One goroutine
// calls it at a time.
func (m *Mirror) SetLeader(address string) {
	select {
	case <-m.leaders:
	default:
	}
	m.leaders <- address // one goroutine calls: there is room
}

// Run follows until ctx ends. No revision is adopted after it has returned, nor, of an earlier leader, after the next one's
// stream has begun.
func (m *Mirror) Run(ctx context.Context) {
	leader := ""
	for ctx.Err() == nil {
		if leader == "" {
			select {
			case leader = <-m.leaders:
			case <-ctx.Done():
			}
			continue
		}
		leader = m.stay(ctx, leader)
	}
}

// stay follows one leader, over as many streams as it takes, and returns the next one.
func (m *Mirror) stay(ctx context.Context, leader string) (next string) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.retry(ctx, leader)
	}()
	defer func() {
		cancel()
		<-done
	}()
	select {
	case next = <-m.leaders:
	case <-ctx.Done():
	}
	return next
}

func (m *Mirror) retry(ctx context.Context, leader string) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failures := 0; ; failures++ {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		err := m.follow(ctx, leader)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > retryMax {
			failures = 0
		}
		m.explain(ctx, leader, err)
		timer.Reset(rand.N(min(retryMax, retryBase<<min(failures, 16))))
	}
}

// explain logs a failure when it is another than the last one.
func (m *Mirror) explain(ctx context.Context, leader string, err error) {
	if errors.Is(err, fwd.ErrDigest) || errors.Is(err, fwd.ErrMalformed) {
		m.forget = true
	}
	text := status.Convert(err).Message()
	if text == m.said {
		return
	}
	m.said = text
	m.cfg.Logger.WarnContext(ctx, "the leader is not followed: tables stay as they are", slog.String("leader", leader), slog.Any("err", err))
}

var errSilent = errors.New("nothing was heard from the leader for too long")

// follow is one stream from hello to end.
func (m *Mirror) follow(ctx context.Context, leader string) error {
	transport, err := m.cfg.Credentials()
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	conn, err := grpc.NewClient("passthrough:///"+leader, grpc.WithTransportCredentials(transport),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: keepAlive}),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytes)),
		grpc.WithStaticStreamWindowSize(windowBytes), grpc.WithStaticConnWindowSize(windowBytes))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(handshakeWithin, func() { cancel(errSilent) })
	defer silence.Stop()
	stream, err := fairleadv1.NewForwardingClient(conn).Follow(ctx)
	if err == nil {
		// An error of Send is told by Recv.
		_ = stream.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Hello{Hello: m.hello()}})
		err = m.receive(&session{mirror: m, leader: leader, to: stream}, stream, silence)
	}
	if own := context.Cause(ctx); errors.Is(own, errSilent) {
		return own
	}
	return err
}

func (m *Mirror) hello() *fairleadv1.Hello {
	h := &fairleadv1.Hello{
		Role: fairleadv1.Hello_ROLE_REPLICA, Node: m.cfg.Self, Version: m.cfg.Version,
		Held: &fairleadv1.Held{Epoch: m.cfg.Store.Epoch(), Revision: m.cfg.Store.Revision()},
	}
	if !m.forget {
		h.Held.CommonDigest, h.Held.Buckets = m.cfg.Store.CommonDigest(), true
	}
	return h
}

type receiver interface {
	Recv() (*fairleadv1.FollowResponse, error)
}

func (m *Mirror) receive(s *session, stream receiver, silence *time.Timer) error {
	for {
		message, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		silence.Stop() // adopting a whole cluster's tables takes its time
		if err := s.handle(message); err != nil {
			return err
		}
		silence.Reset(s.patience)
	}
}
