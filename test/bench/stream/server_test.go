package stream

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/bench/world"
)

// follower is an agent without a kernel.
type follower struct {
	stream fairleadv1.Forwarding_FollowClient
	table  *fwd.Table
}

func follow(t *testing.T, address string) (*follower, error) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f := &follower{table: &fwd.Table{}}
	if f.stream, err = fairleadv1.NewForwardingClient(conn).Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.stream.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Hello{Hello: &fairleadv1.Hello{}}}); err != nil {
		t.Fatal(err)
	}
	m, err := f.stream.Recv()
	if err == nil && m.GetWelcome() == nil {
		t.Fatalf("%v came before the welcome", m)
	}
	return f, err
}

// take reads one revision, in however many pieces, and reports it with an error or none.
func (f *follower) take(t *testing.T, failure string) (pieces int) {
	t.Helper()
	var change fwd.Change
	for {
		m, err := f.stream.Recv()
		if err != nil {
			t.Error(err)
			return
		}
		pieces++
		r := m.GetRevision()
		change.Append(fwd.ChangeFromProto(r))
		if r.GetMore() {
			continue
		}
		if f.table, _, err = f.table.Apply(change); err != nil {
			t.Error(err)
		}
		report := &fairleadv1.Report{Number: r.GetNumber(), DurationMicros: 1500, Error: failure}
		if err := f.stream.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Report{Report: report}}); err != nil {
			t.Error(err)
		}
		return pieces
	}
}

func TestTableAndChanges(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	w := world.World{Services: chunk, Endpoints: 2}
	s := New(w.Rows())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(serving, l) }()
	f, err := follow(t, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	pieces := f.take(t, "")
	a, err := s.First(ctx)
	if err != nil || a.Own != 1500*time.Microsecond || !a.At.After(a.Handed) || a.Handed.IsZero() {
		t.Errorf("first: %+v, %v", a, err)
	}
	if pieces != 4 || f.table.Len() != 3*chunk+2 || len(f.table.Node().Addresses) != 1 {
		t.Errorf("%d pieces, %d rows, %+v", pieces, f.table.Len(), f.table.Node())
	}
	for _, present := range []bool{true, false} {
		go f.take(t, "")
		if a, err := s.Put(ctx, w.ExtraRow(5), present); err != nil || !a.At.After(a.Handed) || a.Handed.IsZero() {
			t.Errorf("put %v: %+v, %v", present, a, err)
		}
		if _, there := f.table.Part(fwd.Common).Get(w.ExtraRow(5).Key); there != present {
			t.Errorf("after %v the row is there: %v", present, there)
		}
	}
	go f.take(t, "the kernel said no")
	if _, err := s.Put(ctx, w.ExtraRow(5), true); err == nil {
		t.Error("a report of a failure is taken for success")
	}
	if _, err := follow(t, l.Addr().String()); err == nil {
		t.Error("an agent that lost its stream is served again")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
