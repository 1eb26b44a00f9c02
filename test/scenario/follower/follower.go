package follower

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// retry is the time between two attempts to connect.
const retry = 50 * time.Millisecond

// Config of a Follower; both fields are required.
type Config struct {
	// Controller is its address, host:port; Node is whose table to follow.
	Controller, Node string
}

// Follower follows one node's table. It is safe for concurrent use.
type Follower struct {
	cfg  Config
	stop context.CancelFunc
	done chan struct{}

	mu sync.Mutex // guards what follows
	// table is the last whole and verified one, current whether a message has said that it is up to date.
	table   *fwd.Table
	current bool
	// changed is closed, and replaced, with every change of table or current.
	changed chan struct{}
	counts  Counts
	// drop ends the stream that lives.
	drop context.CancelFunc
	// last is why the last stream ended.
	last error
}

// Counts are what has been seen since the start.
type Counts struct {
	// Streams is how many were welcomed, Revisions how many came, Whole how many parts were sent whole, Rows how many rows were
	// put or removed.
	Streams, Revisions, Whole, Rows int
}

// Start follows until ctx ends or Close.
func Start(ctx context.Context, cfg Config) *Follower {
	ctx, stop := context.WithCancel(ctx)
	f := &Follower{
		cfg: cfg, stop: stop, done: make(chan struct{}),
		table: &fwd.Table{}, changed: make(chan struct{}), drop: func() {},
	}
	go f.run(ctx)
	return f
}

// Close ends the stream and forgets nothing.
func (f *Follower) Close() {
	f.stop()
	<-f.done
}

// Table is the newest verified table.
func (f *Follower) Table() *fwd.Table {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table
}

// Counts returns what has been seen.
func (f *Follower) Counts() Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts
}

// Reconnect ends the stream; a new one, which says what is held, follows at once.
func (f *Follower) Reconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
}

// Wait returns when a table that a living stream has confirmed satisfies ok. ok is called with every such table.
func (f *Follower) Wait(ctx context.Context, ok func(*fwd.Table) bool) error {
	for {
		f.mu.Lock()
		table, current, changed, last := f.table, f.current, f.changed, f.last
		f.mu.Unlock()
		if current && ok(table) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for table of %s: %w (last stream: %w)", f.cfg.Node, context.Cause(ctx), last)
		case <-changed:
		}
	}
}

func (f *Follower) run(ctx context.Context) {
	defer close(f.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := f.stream(ctx)
		f.update(func() { f.current, f.last = false, err })
		timer.Reset(retry)
	}
}

// update changes what mu guards and wakes who waits.
func (f *Follower) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// stream is one connection from hello to end.
func (f *Follower) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.drop = cancel
	held := f.table
	f.mu.Unlock()

	conn, err := grpc.NewClient(f.cfg.Controller, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	stream, err := fairleadv1.NewForwardingClient(conn).Follow(ctx)
	if err != nil {
		return fmt.Errorf("open stream: %w", err)
	}
	hello := &fairleadv1.Hello{Role: fairleadv1.Hello_ROLE_AGENT, Node: f.cfg.Node, Version: "scenario", Mode: "none", Held: &fairleadv1.Held{
		CommonDigest: held.Part(fwd.Common).Digest(), ZoneDigest: held.Part(fwd.Zone).Digest(), NodeDigest: held.Part(fwd.Node).Digest(),
	}}
	if err := stream.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Hello{Hello: hello}}); err != nil {
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
	f.update(func() { f.counts.Streams++ })
	return f.follow(stream, welcome.GetEpoch())
}

func (f *Follower) follow(stream grpc.BidiStreamingClient[fairleadv1.FollowRequest, fairleadv1.FollowResponse], epoch uint64) error {
	var pending *fwd.Change
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		switch {
		case m.GetRevision() != nil:
			if pending == nil {
				pending = &fwd.Change{}
			}
			pending.Append(fwd.ChangeFromProto(m.GetRevision()))
			if m.GetRevision().GetMore() {
				continue
			}
			if err := f.apply(*pending); err != nil {
				return err
			}
			pending = nil
			report := &fairleadv1.Report{Epoch: epoch, Number: m.GetRevision().GetNumber()}
			if err := stream.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Report{Report: report}}); err != nil {
				return fmt.Errorf("send report: %w", err)
			}
		case m.GetHeartbeat() != nil:
			if got := f.Table().Digest(); got != m.GetHeartbeat().GetDigest() {
				return fmt.Errorf("heartbeat: digest %016x, held %016x", m.GetHeartbeat().GetDigest(), got)
			}
			f.update(func() { f.current = true })
		default:
			return fmt.Errorf("message %T: want a revision or a heartbeat", m.GetMessage())
		}
	}
}

func (f *Follower) apply(c fwd.Change) error {
	next, _, err := f.Table().Apply(c)
	if err != nil {
		// What is held is wrong or what came is: either way the next hello asks for everything.
		f.update(func() { f.table = &fwd.Table{} })
		return errors.Join(errors.New("revision refused"), err)
	}
	f.update(func() {
		f.table, f.current = next, true
		f.counts.Revisions++
		for _, s := range fwd.Scopes() {
			if p := c.Parts[s]; p != nil {
				f.counts.Rows += len(p.Put) + len(p.Remove)
				if p.Replace {
					f.counts.Whole++
				}
			}
		}
	})
	return nil
}
