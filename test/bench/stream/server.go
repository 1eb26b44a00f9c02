// Package stream serves one table to one fairlead-agent, over the real protocol, and takes its reports: the controller's
// half of a measurement of the agent alone.
//
// Input are rows and later their changes; output are what the agent reports, with the times at which the change was given
// to the transport and the report came. Its neighbours are package world, whose rows it serves, and package contest.
package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Applied is what the agent said of a revision.
type Applied struct {
	// Handed is when the first byte of the revision was given to the transport, At when the report was read.
	Handed, At time.Time
	// Own is how long the agent says it took.
	Own time.Duration
}

// Server is made by New and served by Serve.
type Server struct {
	fairleadv1.UnimplementedForwardingServer

	steps   chan step
	reports chan *fairleadv1.Report

	mu sync.Mutex
	// mu guards the parts and what was made of them.
	common, node *fwd.Part
	number       uint64
	following    bool
	asked        time.Time
}

// step is one change on its way to the agent.
type step struct {
	revision *fairleadv1.Revision
	handed   chan time.Time
}

// chunk is the number of rows in one message of a snapshot: about the 256 KiB that the controller sends.
const chunk = 6000

const heartbeat = 9 * time.Minute // longer than anything that is measured, so that nothing else is on the wire

// New returns a Server of two parts' rows.
func New(common, node []fwd.Row) *Server {
	empty := &fwd.Part{}
	return &Server{
		common: empty.With(nil, common), node: empty.With(nil, node), number: 1,
		steps: make(chan step), reports: make(chan *fairleadv1.Report, 100),
	}
}

// Serve serves at l until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}))
	fairleadv1.RegisterForwardingServer(server, s)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve table: %w", err)
	}
	return nil
}

// Asked is when the agent said hello, which is when it is handed the first byte of its table; zero before.
func (s *Server) Asked() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// First waits until the agent's kernel holds the first revision.
func (s *Server) First(ctx context.Context) (Applied, error) {
	a, err := s.applied(ctx, 1)
	a.Handed = s.Asked()
	return a, err
}

// Put adds a row to, or removes it from, the common part, and waits until the agent's kernel holds that.
func (s *Server) Put(ctx context.Context, row fwd.Row, present bool) (Applied, error) {
	c := step{revision: s.edit(row, present), handed: make(chan time.Time, 1)}
	select {
	case s.steps <- c:
	case <-ctx.Done():
		return Applied{}, fmt.Errorf("hand over a change: %w", context.Cause(ctx))
	}
	a, err := s.applied(ctx, c.revision.GetNumber())
	if err != nil {
		return a, err
	}
	a.Handed = <-c.handed
	return a, nil
}

// edit makes the next revision.
func (s *Server) edit(row fwd.Row, present bool) *fairleadv1.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := s.common.With([]string{row.Key}, nil)
	if present {
		after = s.common.With(nil, []fwd.Row{row})
	}
	change := fwd.DiffParts(s.common, after)
	s.common = after
	s.number++
	return &fairleadv1.Revision{Number: s.number, CauseUnixMicros: now(), Common: change.Proto()}
}

func now() uint64 { return uint64(time.Now().UnixMicro()) } //nolint:gosec // it is after 1970

// applied waits for the report of a revision.
func (s *Server) applied(ctx context.Context, number uint64) (Applied, error) {
	for {
		select {
		case r := <-s.reports:
			a := Applied{At: time.Now(), Own: time.Duration(r.GetDurationMicros()) * time.Microsecond} //nolint:gosec // a duration
			switch {
			case r.GetError() != "":
				return a, errors.New("the agent reports: " + strings.TrimSpace(r.GetError()))
			case r.GetNumber() >= number:
				return a, nil
			}
		case <-ctx.Done():
			return Applied{}, fmt.Errorf("wait for revision %d to be applied: %w", number, context.Cause(ctx))
		}
	}
}

// Follow implements the protocol for the one agent that there is.
func (s *Server) Follow(f fairleadv1.Forwarding_FollowServer) error {
	if _, err := f.Recv(); err != nil {
		return fmt.Errorf("read hello: %w", err)
	}
	snapshot, err := s.begin()
	if err != nil {
		return err
	}
	welcome := &fairleadv1.Welcome{Epoch: 1, HeartbeatIntervalMs: uint32(heartbeat.Milliseconds())}
	if err := f.Send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Welcome{Welcome: welcome}}); err != nil {
		return fmt.Errorf("send welcome: %w", err)
	}
	for _, r := range snapshot {
		if err := send(f, r); err != nil {
			return err
		}
	}
	go s.listen(f)
	for {
		select {
		case <-f.Context().Done():
			return nil
		case c := <-s.steps:
			c.handed <- time.Now()
			if err := send(f, c.revision); err != nil {
				return err
			}
		}
	}
}

// begin encodes the table, before the clock starts: a controller has it encoded for all its agents.
func (s *Server) begin() ([]*fairleadv1.Revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.following {
		return nil, errors.New("follow: the agent came a second time, so its first stream was lost")
	}
	revisions := snapshot(s.common, s.node)
	s.following, s.asked = true, time.Now()
	return revisions, nil
}

// listen passes reports on until the stream ends.
func (s *Server) listen(f fairleadv1.Forwarding_FollowServer) {
	for {
		m, err := f.Recv()
		if err != nil {
			return
		}
		select {
		case s.reports <- m.GetReport():
		case <-f.Context().Done():
			return
		}
	}
}

// snapshot is the first revision in pieces.
func snapshot(common, node *fwd.Part) []*fairleadv1.Revision {
	all, own := common.Snapshot(), node.Snapshot()
	whole := all.Proto()
	var revisions []*fairleadv1.Revision
	for rows := range slices.Chunk(whole.GetPut(), chunk) {
		revisions = append(revisions, &fairleadv1.Revision{Number: 1, More: true, Common: &fairleadv1.Part{Put: rows, Digest: whole.GetDigest()}})
	}
	revisions[0].Common.Replace = true
	last := revisions[len(revisions)-1]
	last.More, last.Node, last.CauseUnixMicros = false, own.Proto(), now()
	return revisions
}

func send(f fairleadv1.Forwarding_FollowServer, r *fairleadv1.Revision) error {
	if err := f.Send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Revision{Revision: r}}); err != nil {
		return fmt.Errorf("send revision %d: %w", r.GetNumber(), err)
	}
	return nil
}
