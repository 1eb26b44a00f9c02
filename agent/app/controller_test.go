package app

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

type serverStream = grpc.BidiStreamingServer[fairleadv1.FollowRequest, fairleadv1.FollowResponse]

// controller is a real gRPC server that sends one agent the tables a test gives it, whole.
type controller struct {
	fairleadv1.UnimplementedForwardingServer
	address string
	tables  chan *fwd.Table
	reports chan *fairleadv1.Report
	cut     chan struct{}
	hellos  chan *fairleadv1.Hello
	// unchanged sends a revision without a change.
	unchanged chan struct{}
	// ended tells of each stream that is over: until then, it takes what is meant for the next one.
	ended chan struct{}
	stop  func()
}

func newController(t *testing.T, options ...grpc.ServerOption) *controller {
	t.Helper()
	return newControllerAt(t, "127.0.0.1:0", options...)
}

func newControllerAt(t *testing.T, address string, options ...grpc.ServerOption) *controller {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c := &controller{
		address: l.Addr().String(), tables: make(chan *fwd.Table), reports: make(chan *fairleadv1.Report, 100), cut: make(chan struct{}),
		hellos: make(chan *fairleadv1.Hello, 100), unchanged: make(chan struct{}),
		ended: make(chan struct{}, 100),
	}
	server := grpc.NewServer(options...)
	fairleadv1.RegisterForwardingServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	c.stop = sync.OnceFunc(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // a test may end before it has begun
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(c.stop)
	return c
}

func (c *controller) Follow(s serverStream) error {
	defer func() { c.ended <- struct{}{} }()
	m, err := s.Recv()
	if err != nil {
		return err
	}
	c.hellos <- m.GetHello()
	if err := s.Send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{
		Epoch: 1, HeartbeatIntervalMs: 60_000,
	}}}); err != nil {
		return err
	}
	go func() {
		for {
			m, err := s.Recv()
			if err != nil {
				return
			}
			c.reports <- m.GetReport()
		}
	}()
	for number := uint64(1); ; number++ {
		select {
		case <-s.Context().Done():
			return nil
		case <-c.cut:
			return nil
		case <-c.unchanged:
			r := &fairleadv1.Revision{Number: number}
			if err := s.Send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Revision{Revision: r}}); err != nil {
				return err
			}
		case t := <-c.tables:
			r := &fairleadv1.Revision{Number: number, CauseUnixMicros: uint64(time.Now().UnixMicro())}
			for scope, part := range map[fwd.Scope]**fairleadv1.Part{fwd.Common: &r.Common, fwd.Zone: &r.Zone, fwd.Node: &r.Node} {
				snapshot := t.Part(scope).Snapshot()
				*part = snapshot.Proto()
			}
			if err := s.Send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Revision{Revision: r}}); err != nil {
				return err
			}
		}
	}
}

// send gives the agent a table, in text form, and returns its report.
func (c *controller) send(t *testing.T, text string) *fairleadv1.Report {
	t.Helper()
	c.put(t, text)
	select {
	case r := <-c.reports:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("no report came")
		return nil
	}
}

// put gives the agent a table, in text form.
func (c *controller) put(t *testing.T, text string) {
	t.Helper()
	table, err := fwd.ParseText(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case c.tables <- table:
	case <-time.After(20 * time.Second):
		t.Fatal("no agent came")
	}
}

// running is a running agent.
type running struct {
	Addresses
	stop func() error
}

// startAgent runs an agent and returns when it listens.
func startAgent(t *testing.T, cfg Config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	listening, ended := make(chan Addresses, 1), make(chan error, 1)
	cfg.Listening = func(a Addresses) { listening <- a }
	go func() { ended <- Run(ctx, cfg) }()
	a := &running{}
	stopped := false
	a.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := a.stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case a.Addresses = <-listening:
	case err := <-ended:
		ended <- err
		t.Fatalf("run: %v", err)
	case <-time.After(20 * time.Second):
		t.Fatal("the agent does not start")
	}
	return a
}

// eventually asks again and again until ok, for as long as a slow machine may need.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(within)
	for !ok() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
