package swarm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// The waits are those of the real agent: full jitter up to retryBase doubled with each failure, and up to retryMax.
const (
	retryBase = 100 * time.Millisecond
	retryMax  = 5 * time.Second
	handshake = 10 * time.Second
	keepAlive = 15 * time.Second
	window    = 1 << 20
)

// agent is one simulated agent. Its goroutine alone changes table, epoch, number and clock, under mu.
type agent struct {
	swarm *Swarm
	index int
	Agent

	mu            sync.Mutex // guards what follows
	table         *fwd.Table
	epoch, number uint64
	clock         uint16
	// connected: the stream that lives is welcomed; current: it has brought a revision.
	connected, current bool
	conn               *net.TCPConn
}

// run follows one controller after the other until ctx ends.
func (a *agent) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	attempt, failures := 0, 0
	if a.swarm.cfg.Spread {
		attempt = a.index
	}
	for ; ; attempt++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		err := a.follow(ctx, a.swarm.cfg.Controllers[attempt%len(a.swarm.cfg.Controllers)])
		a.ended(err)
		if time.Since(began) > retryMax {
			failures = 0
		}
		bound := min(retryMax, retryBase<<min(failures, 16))
		failures++
		timer.Reset(asked(err) + rand.N(bound))
	}
}

// asked is how long a controller asks to wait.
func asked(err error) time.Duration {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

func (a *agent) ended(err error) {
	a.mu.Lock()
	a.connected, a.current, a.conn = false, false, nil
	if errors.Is(err, fwd.ErrDigest) || errors.Is(err, fwd.ErrMalformed) {
		a.table = &fwd.Table{} // the next hello asks for everything
	}
	a.mu.Unlock()
	a.swarm.ended(err)
}

// dial makes the connection of a stream and remembers it for its counters.
func (a *agent) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	if a.swarm.cfg.Source != "" {
		source, err := netip.ParseAddr(a.swarm.cfg.Source)
		if err != nil {
			return nil, fmt.Errorf("source %q: %w", a.swarm.cfg.Source, err)
		}
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.conn, _ = conn.(*net.TCPConn) // tcp always is
	a.mu.Unlock()
	return conn, nil
}

// follow is one connection from hello to end.
func (a *agent) follow(ctx context.Context, address string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(handshake, func() { cancel(errSilent) })
	defer silence.Stop()
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(a.swarm.creds), grpc.WithContextDialer(a.dial), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepAlive, Timeout: keepAlive}),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	if a.Token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+a.Token)
	}
	stream, err := fairleadv1.NewForwardingClient(conn).Follow(ctx)
	if err != nil {
		return fmt.Errorf("open stream: %w", err)
	}
	if err := stream.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Hello{Hello: a.hello()}}); err != nil {
		_, err = stream.Recv() // which has the reason
		return fmt.Errorf("send hello: %w", err)
	}
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("receive welcome: %w", err)
	}
	welcome := first.GetWelcome()
	if welcome == nil {
		return fmt.Errorf("first message is %T: want a welcome", first.GetMessage())
	}
	if err := a.enter(welcome.GetEpoch()); err != nil {
		return err
	}
	a.mu.Lock()
	a.connected = true
	a.mu.Unlock()
	a.swarm.streams.Add(1)
	patience := 3 * time.Duration(welcome.GetHeartbeatIntervalMs()) * time.Millisecond
	return a.receive(stream, func() { silence.Reset(patience) })
}

var errSilent = errors.New("nothing was heard for three heartbeats")

func (a *agent) hello() *fairleadv1.Hello {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &fairleadv1.Hello{
		Role: fairleadv1.Hello_ROLE_AGENT, Node: a.Node, Version: "scale", Mode: "none",
		Held: &fairleadv1.Held{
			Epoch: a.epoch, Revision: a.number,
			CommonDigest: a.table.Part(fwd.Common).Digest(), ZoneDigest: a.table.Part(fwd.Zone).Digest(), NodeDigest: a.table.Part(fwd.Node).Digest(),
			Buckets: true,
		},
	}
}

// receive takes messages until the stream ends; heard is called with each.
func (a *agent) receive(stream grpc.BidiStreamingClient[fairleadv1.FollowRequest, fairleadv1.FollowResponse], heard func()) error {
	var whole fwd.Change
	verified := false // there was a revision on this stream
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		heard()
		if beat := m.GetHeartbeat(); beat != nil {
			if err := a.heartbeat(beat, verified); err != nil {
				return err
			}
			continue
		}
		if q := m.GetQuestion(); q != nil {
			if err := a.answer(stream, q); err != nil {
				return err
			}
			continue
		}
		r := m.GetRevision()
		if r == nil {
			return fmt.Errorf("message %T: want a revision or a heartbeat", m.GetMessage())
		}
		a.swarm.messageBytes.Add(int64(proto.Size(m)))
		whole.Append(fwd.ChangeFromProto(r))
		if r.GetMore() {
			continue
		}
		if err := a.apply(whole, r.GetNumber()); err != nil {
			return err
		}
		whole, verified = fwd.Change{}, true
		report := &fairleadv1.Report{Epoch: a.held().Epoch, Number: r.GetNumber()}
		if err := stream.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Report{Report: report}}); err != nil {
			return fmt.Errorf("send report: %w", err)
		}
	}
}

// heartbeat takes a newer epoch, and compares digests once there was a revision.
func (a *agent) heartbeat(beat *fairleadv1.Heartbeat, verified bool) error {
	if err := a.enter(max(beat.GetEpoch(), a.held().Epoch)); err != nil {
		return err
	}
	if digest := a.held().Digest; verified && digest != beat.GetDigest() {
		return fmt.Errorf("heartbeat: digest %016x, held %016x: %w", beat.GetDigest(), digest, fwd.ErrDigest)
	}
	return nil
}

// answer tells the digests of buckets of what is held.
func (a *agent) answer(stream grpc.BidiStreamingClient[fairleadv1.FollowRequest, fairleadv1.FollowResponse], q *fairleadv1.Question) error {
	answer, err := a.table.Answer(q) // this goroutine alone changes the table
	if err != nil {
		return err
	}
	if err := stream.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Answer{Answer: answer}}); err != nil {
		return fmt.Errorf("send answer: %w", err)
	}
	a.swarm.questions.Add(1)
	return nil
}

var errFenced = errors.New("a controller of an older epoch")

// enter takes an epoch that is not older than the one before. Numbers of one epoch only grow, whoever sends them.
func (a *agent) enter(epoch uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if epoch < a.epoch {
		return errFenced
	}
	if epoch > a.epoch {
		a.epoch, a.number = epoch, 0
	}
	return nil
}

func (a *agent) held() Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Held{Epoch: a.epoch, Revision: a.number, Digest: a.table.Digest()}
}
