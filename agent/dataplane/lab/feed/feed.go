// Package feed is a controller for tests of whole agents: a real server of the stream that gives each agent the table of the
// moment, whole, and each later one.
//
// Input are tables that a test sets, output are the agents' reports. It knows nothing of Kubernetes, resumes nothing, and
// speaks without TLS. Its neighbours are the tests that start agents in a lab.
package feed

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Server is described at the package. Its methods may be called from any goroutine.
type Server struct {
	fairleadv1.UnimplementedForwardingServer
	// Reports are what agents report; they wait until a test takes them, or the agent is gone.
	Reports chan *fairleadv1.Report

	server *grpc.Server
	served chan error

	mu sync.Mutex
	// mu guards table and changed, which is closed when there is a later table.
	table   *fwd.Table
	number  uint64
	changed chan struct{}
}

// Serve serves on a listener until Close.
func Serve(l net.Listener) *Server {
	s := &Server{Reports: make(chan *fairleadv1.Report), server: grpc.NewServer(), served: make(chan error, 1), changed: make(chan struct{})}
	fairleadv1.RegisterForwardingServer(s.server, s)
	go func() { s.served <- s.server.Serve(l) }()
	return s
}

// Close ends all streams.
func (s *Server) Close() error {
	s.server.Stop()
	if err := <-s.served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // it had not begun
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// Set makes a table the one of the moment, and returns its revision.
func (s *Server) Set(t *fwd.Table) (number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = t
	s.number++
	close(s.changed)
	s.changed = make(chan struct{})
	return s.number
}

func (s *Server) current() (*fwd.Table, uint64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table, s.number, s.changed
}

// Follow implements the service.
func (s *Server) Follow(stream grpc.BidiStreamingServer[fairleadv1.FollowRequest, fairleadv1.FollowResponse]) error {
	if _, err := stream.Recv(); err != nil {
		return err //nolint:wrapcheck // it is a status
	}
	if err := stream.Send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{
		Epoch: 1, HeartbeatIntervalMs: 60_000,
	}}}); err != nil {
		return err //nolint:wrapcheck // it is a status
	}
	go s.listen(stream)
	for {
		table, number, changed := s.current()
		if table != nil {
			if err := stream.Send(revision(table, number)); err != nil {
				return err //nolint:wrapcheck // it is a status
			}
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (s *Server) listen(stream grpc.BidiStreamingServer[fairleadv1.FollowRequest, fairleadv1.FollowResponse]) {
	for {
		m, err := stream.Recv()
		if err != nil {
			return
		}
		select {
		case s.Reports <- m.GetReport():
		case <-stream.Context().Done():
			return
		}
	}
}

// revision is a table as it is sent.
func revision(t *fwd.Table, number uint64) *fairleadv1.FollowResponse {
	r := &fairleadv1.Revision{Number: number, CauseUnixMicros: uint64(time.Now().UnixMicro())} //nolint:gosec // after 1970
	for scope, part := range map[fwd.Scope]**fairleadv1.Part{fwd.Common: &r.Common, fwd.Zone: &r.Zone, fwd.Node: &r.Node} {
		snapshot := t.Part(scope).Snapshot()
		*part = snapshot.Proto()
	}
	return &fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Revision{Revision: r}}
}
