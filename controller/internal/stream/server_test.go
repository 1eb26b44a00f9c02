package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/controller/internal/table"
	"github.com/fairlead/fairlead/proto/fwd"
)

func port(n int) fwd.ServicePort {
	return fwd.ServicePort{
		PortName:  fwd.PortName{Namespace: "default", Name: fmt.Sprintf("s%d", n), Protocol: fwd.TCP},
		ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}), Port: 80, Usable: true,
	}
}

func backend(service, n int) fwd.Row {
	addr := netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
	return fwd.EncodeBackend(port(service).ID(), fwd.Backend{Addr: netip.AddrPortFrom(addr, 8080)})
}

func backends(service, from, to int) fwd.Update {
	var u fwd.Update
	for n := from; n < to; n++ {
		u.Put = append(u.Put, backend(service, n))
	}
	return u
}

func onNode(node string, u fwd.Update) fwd.Update {
	u.Audience = fwd.Audience{Scope: fwd.Node, Name: node}
	return u
}

func transports() map[string]transport {
	return map[string]transport{"memory": overMemory, "TCP": overTCP}
}

// TestServes holds that an agent gets its table, each change, and heartbeats; and that a change of another node's rows
// makes it current without hearing of it.
func TestServes(t *testing.T) {
	for name, via := range transports() {
		t.Run(name, func(t *testing.T) {
			noneLeft(t)
			r := newRig(t, via, table.Options{MessageBytes: 1024}, func(c *Config) { c.Heartbeat = 5 * time.Millisecond })
			r.publish(fwd.Update{Put: []fwd.Row{fwd.EncodePort(port(1))}}, backends(1, 0, 500))
			a := r.agent("a")
			eventually(t, "connected", func() bool { return r.observer.Status().Current == 1 })
			a.check(t, r.store)
			r.wait(r.publish(backends(1, 500, 501), onNode("a", backends(1, 3, 5))))
			a.check(t, r.store)
			last := r.publish(onNode("b", backends(1, 9, 11)))
			r.wait(last)
			eventually(t, "a heartbeat of the revision that does not concern it", func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				n := len(a.heartbeats)
				return n > 0 && a.heartbeats[n-1].GetNumber() == last
			})
			if a.revisions != 2 || a.rows != 504 {
				t.Errorf("%d revisions of %d rows, want 2 of 504", a.revisions, a.rows)
			}
			a.close()
		})
	}
}

// TestHistories holds that agents that come, go, and resume at random moments, while tables change, end with the store's
// tables.
func TestHistories(t *testing.T) {
	for name, via := range transports() {
		t.Run(name, func(t *testing.T) {
			noneLeft(t)
			r := newRig(t, via, table.Options{MessageBytes: 1024, Recent: 8})
			r.publish(backends(1, 0, 300))
			var group sync.WaitGroup
			agents := make([]*agent, 8)
			for i := range agents {
				agents[i] = r.agent(fmt.Sprintf("n%d", i%6)) // two nodes have two agents: the newer wins
				group.Go(func() { wander(r, agents[i], rand.New(rand.NewPCG(uint64(i), 1)), i >= 2 && i < 6) })
			}
			done := make(chan struct{})
			go func() { group.Wait(); close(done) }()
			publishUntil(r, done)
			for _, a := range agents[2:6] {
				eventually(t, "agent "+a.node+" has the store's table", func() bool {
					if len(a.ended) > 0 { // an earlier stream of its own came to the server later
						a.close()
						a.connect(r)
					}
					return a.matches(r.store)
				})
				a.check(t, r.store)
			}
			for _, a := range agents {
				a.close()
			}
		})
	}
}

// wander reconnects a few times; an agent that is alone on its node ends connected.
func wander(r *rig, a *agent, rng *rand.Rand, alone bool) {
	for range 5 {
		want := rng.IntN(20)
		eventually(r.t, "some revisions or the end", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.revisions >= want || !alone || len(a.ended) > 0
		})
		a.close()
		a.connect(r)
	}
}

func publishUntil(r *rig, done <-chan struct{}) {
	rng := rand.New(rand.NewPCG(99, 1))
	for {
		select {
		case <-done:
			return
		default:
			publishRandomly(r, rng)
		}
	}
}

func publishRandomly(r *rig, rng *rand.Rand) {
	u := fwd.Update{}
	switch rng.IntN(3) {
	case 1:
		u.Audience = fwd.Audience{Scope: fwd.Zone}
	case 2:
		u.Audience = fwd.Audience{Scope: fwd.Node, Name: fmt.Sprintf("n%d", rng.IntN(6))}
	}
	row := backend(1, rng.IntN(600))
	if rng.IntN(2) == 0 {
		u.Remove = []string{row.Key}
	} else {
		u.Put = []fwd.Row{row}
	}
	r.publish(u)
}

// TestStalled holds that an agent that does not read delays nobody, and gets one merged difference when it reads again.
func TestStalled(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overTCP, table.Options{})
	r.publish(backends(1, 0, 20_000)) // 600 kB: more than the windows of the connection
	stalled, _ := r.open(r.dial(grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10)))
	if err := stalled.Send(helloOf("stalled", nil)); err != nil {
		t.Fatal(err)
	}
	lively := r.agent("lively")
	eventually(t, "both connected", func() bool { return r.observer.Status().Connected == 2 })
	r.waitHeld(lively)
	for n := range 200 {
		last := r.publish(backends(9, n, n+1))
		eventually(t, "the lively agent follows", func() bool { return holds(r, "lively") >= last })
	}
	lively.check(t, r.store)

	catching := &agent{node: "stalled", table: &fwd.Table{}, stream: stalled, ended: make(chan error, 1), cancel: func() {}}
	go func() { catching.ended <- catching.follow() }()
	r.wait(r.store.Revision())
	catching.check(t, r.store)
	if catching.revisions > 3 {
		t.Errorf("%d revisions for 200 changes that were missed: want them merged", catching.revisions)
	}
	r.grpc.Stop()
	_ = catching.wait()
	_ = lively.wait()
}

func (r *rig) waitHeld(a *agent) {
	r.t.Helper()
	eventually(r.t, "the agent holds everything", func() bool { return holds(r, a.node) == r.store.Revision() })
}

func holds(r *rig, node string) uint64 {
	for _, n := range r.observer.Status().Nodes {
		if n.Node == node {
			return n.Holds
		}
	}
	return 0
}

// TestNewestWins holds that a node has one live stream.
func TestNewestWins(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overMemory, table.Options{})
	first := r.agent("a")
	eventually(t, "connected", func() bool { return r.observer.Status().Connected == 1 })
	second := r.agent("a")
	if err := <-first.ended; status.Code(err) != codes.Aborted {
		t.Errorf("the older stream ended with %v, want ABORTED", err)
	}
	r.waitConnected(1)
	r.wait(r.publish(backends(1, 0, 1)))
	second.check(t, r.store)
	second.close()
}

// TestEndIsNoticed holds that a stream ends on this side as soon as its agent goes, not when a heartbeat fails.
func TestEndIsNoticed(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overTCP, table.Options{}, func(c *Config) { c.Heartbeat = time.Hour })
	for range 30 {
		a := r.agent("a")
		r.waitConnected(1)
		a.close()
		eventually(t, "disconnected", func() bool { return r.observer.Status().Connected == 0 })
	}
}

// TestResumes holds that a stream sends nothing that the agent holds.
func TestResumes(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overMemory, table.Options{})
	r.publish(backends(1, 0, 1000))
	a := r.agent("a")
	r.waitConnected(1)
	a.close()
	before := a.rows
	r.publish(backends(1, 1000, 1003))
	a.connect(r)
	r.waitConnected(1)
	a.check(t, r.store)
	if came := a.rows - before; came != 3 {
		t.Errorf("%d rows came after the reconnect, want 3", came)
	}
	a.close()
}

// waitConnected waits for n agents that hold everything.
func (r *rig) waitConnected(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d agents are current", n), func() bool {
		st := r.observer.Status()
		return st.Connected == n && st.Current == n
	})
}

// TestAdmission holds that whole tables are given out at a bounded rate, with a hint, and that a resume needs no token.
func TestAdmission(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overMemory, table.Options{}, func(c *Config) {
		c.SnapshotsPerSecond, c.SnapshotBurst, c.AdmissionWait = 0.01, 1, time.Millisecond
	})
	r.publish(backends(1, 0, 3))
	a := r.agent("a")
	r.waitConnected(1)
	refused := r.agent("b")
	err := <-refused.ended
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("error %v, want RESOURCE_EXHAUSTED", err)
	}
	details := status.Convert(err).Details()
	if len(details) != 1 {
		t.Fatalf("details %v, want one RetryInfo", details)
	}
	info, ok := details[0].(*errdetails.RetryInfo)
	if delay := info.GetRetryDelay().AsDuration(); !ok || delay < 50*time.Second || delay > 101*time.Second {
		t.Errorf("detail %v, want a RetryInfo of about 100 s", details[0])
	}
	a.close()
	a.connect(r)
	r.waitConnected(1)
	a.close()
}

// TestAdmissionWaits holds that a short wait is waited out on the stream.
func TestAdmissionWaits(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overMemory, table.Options{}, func(c *Config) { c.SnapshotsPerSecond, c.SnapshotBurst = 50, 1 })
	r.publish(backends(1, 0, 3))
	var agents []*agent
	for i := range 5 {
		agents = append(agents, r.agent(fmt.Sprint(i)))
	}
	r.waitConnected(5)
	for _, a := range agents {
		a.close()
	}
}

// TestDoor holds that nobody is served before the tables are complete, nor without authority.
func TestDoor(t *testing.T) {
	for name, tc := range map[string]struct {
		adapt func(*Config)
		want  codes.Code
	}{
		"not synced":     {func(c *Config) { c.Synced = func() bool { return false } }, codes.Unavailable},
		"not authorised": {func(c *Config) { c.Authorize = func(context.Context, string) error { return errors.New("no") } }, codes.PermissionDenied},
		"no hello":       {func(c *Config) { c.HelloTimeout = time.Millisecond }, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			noneLeft(t)
			r := newRig(t, overMemory, table.Options{}, tc.adapt)
			s, _ := r.open(r.dial())
			if name != "no hello" {
				// The server may be gone already, which Recv tells.
				_ = s.Send(helloOf("a", nil))
			}
			if _, err := s.Recv(); status.Code(err) != tc.want {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if st := r.observer.Status(); len(st.Nodes) != 0 {
				t.Errorf("observed %+v", st.Nodes)
			}
		})
	}
}

// TestDrain holds that a drain ends all streams, refuses new ones, and says when it is done.
func TestDrain(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overMemory, table.Options{}, func(c *Config) { c.DrainSpread = 20 * time.Millisecond })
	var agents []*agent
	for i := range 4 {
		agents = append(agents, r.agent(fmt.Sprint(i)))
	}
	silent, _ := r.open(r.dial())
	r.waitConnected(4)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.server.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	for _, a := range append(agents, r.agent("late")) {
		if err := <-a.ended; status.Code(err) != codes.Unavailable {
			t.Errorf("agent %s ended with %v, want UNAVAILABLE", a.node, err)
		}
	}
	if _, err := silent.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("silent stream ended with %v, want UNAVAILABLE", err)
	}
	if err := r.server.Drain(ctx); err != nil {
		t.Errorf("second drain: %v", err)
	}
}

// TestConfig holds that a Config that cannot work is refused by name.
func TestConfig(t *testing.T) {
	_, err := NewServer(Config{})
	for _, field := range []string{"Epoch", "Follow", "Synced", "Authorize", "Observe"} {
		if err == nil || !contains(err, field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
}
