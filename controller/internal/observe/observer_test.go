package observe

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/proto/fwd"
)

// tables is a store of one port, whose revision a test sets.
type tables struct {
	revision uint64
	err      error
}

func (s *tables) Epoch() uint64    { return 7 }
func (s *tables) Revision() uint64 { return s.revision }
func (s *tables) Table(string) (*fwd.Table, uint64, error) {
	if s.err != nil {
		return nil, 0, s.err
	}
	p := fwd.ServicePort{
		PortName: fwd.PortName{Namespace: "default", Name: "web", Protocol: fwd.TCP}, ClusterIP: netip.MustParseAddr("10.96.0.1"), Port: 80,
	}
	t, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{fwd.Common: (&fwd.Part{}).With(nil, []fwd.Row{fwd.EncodePort(p)})})
	return t, s.revision, err
}

// position is a follower that a test moves.
type position struct{ through, last uint64 }

func (p *position) get() (uint64, uint64) { return p.through, p.last }

type rig struct {
	t        *testing.T
	tables   *tables
	registry *prometheus.Registry
	observer *Observer
	now      time.Time
	sequence uint64
	// exist are the Nodes that there are.
	exist []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, tables: &tables{revision: 1}, registry: prometheus.NewRegistry(), now: time.Unix(1000, 0)}
	var err error
	r.observer, err = New(Config{
		Tables: r.tables, Registry: r.registry, Now: func() time.Time { return r.now }, Nodes: func() []string { return r.exist },
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) connect(node string) (*Session, *position) {
	r.sequence++
	if !slices.Contains(r.exist, node) {
		r.exist = append(r.exist, node)
	}
	p := &position{}
	return r.observer.Connected(Agent{Node: node, Mode: "ipvs", Version: "v1", Remote: "192.0.2.1:5", Sequence: r.sequence, Position: p.get}), p
}

// send moves a position and says so, as a stream does.
func (r *rig) send(s *Session, p *position, number uint64) {
	p.through, p.last = number, number
	s.Sent(number, r.now)
}

func (r *rig) node(name string) NodeStatus {
	r.t.Helper()
	for _, n := range r.observer.Status().Nodes {
		if n.Node == name {
			return n
		}
	}
	r.t.Fatalf("no node %s", name)
	return NodeStatus{}
}

// TestCurrent holds what makes a node current: what was sent is applied, and what was not sent does not concern it.
func TestCurrent(t *testing.T) {
	r := newRig(t)
	s, p := r.connect("a")
	if n := r.node("a"); n.Current || n.Holds != 0 || n.state() != "behind" {
		t.Errorf("before the first revision: %+v", n)
	}
	r.send(s, p, 1)
	s.Applied(1, time.Millisecond)
	if n := r.node("a"); !n.Current || n.state() != "current" {
		t.Errorf("after the first revision: %+v", n)
	}
	r.tables.revision, p.through = 5, 5
	if n := r.node("a"); !n.Current || n.Holds != 5 {
		t.Errorf("revision 5 does not concern it: %+v", n)
	}
	r.tables.revision, p.through = 6, 1
	if n := r.node("a"); n.Current || n.Holds != 1 {
		t.Errorf("revision 6 concerns it and is not taken: %+v", n)
	}
	r.send(s, p, 6)
	r.now = r.now.Add(3 * time.Second)
	if n := r.node("a"); n.Current || n.LagSeconds != 3 {
		t.Errorf("revision 6 is on its way for 3 s: %+v", n)
	}
	s.Failed(6, "iptables-restore: no space")
	if n := r.node("a"); n.Current || n.state() != "failing" || r.observer.Status().Failing != 1 {
		t.Errorf("revision 6 was refused: %+v", n)
	}
	s.Applied(6, time.Millisecond)
	if n := r.node("a"); !n.Current || n.Error != "" || n.LagSeconds != 0 {
		t.Errorf("revision 6 was applied in the end: %+v", n)
	}
	s.Closed(nil)
	if n := r.node("a"); n.Connected || n.Current || n.Holds != 6 || n.state() != "away" {
		t.Errorf("after the stream: %+v", n)
	}
}

// TestOlderStreamIsIgnored holds that of two streams of a node the newer counts, in whatever order they speak.
func TestOlderStreamIsIgnored(t *testing.T) {
	r := newRig(t)
	first, p1 := r.connect("a")
	r.send(first, p1, 1)
	second, p2 := r.connect("a")
	r.send(second, p2, 1)
	first.Applied(1, 0)
	first.Failed(1, "old")
	first.Closed(errors.New("aborted"))
	if n := r.node("a"); !n.Connected || n.Holds != 0 || n.Error != "" {
		t.Errorf("the older stream was heard: %+v", n)
	}
	late := r.observer.Connected(Agent{Node: "a", Sequence: 1, Position: p1.get})
	late.Closed(nil)
	if n := r.node("a"); !n.Connected {
		t.Error("an older stream that was announced late ended the newer one")
	}
	second.Applied(1, 0)
	if n := r.node("a"); !n.Current {
		t.Errorf("the newer stream: %+v", n)
	}
}

// TestWait holds whom a wait waits for.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.tables.revision = 4
		a, pa := r.connect("a")
		b, pb := r.connect("b")
		gone, _ := r.connect("gone")
		gone.Closed(nil)
		for s, p := range map[*Session]*position{a: pa, b: pb} {
			r.send(s, p, 3)
		}
		wait, all := make(chan error, 1), make(chan error, 1)
		go func() { wait <- r.observer.Wait(t.Context(), 3) }()
		go func() { all <- r.observer.WaitAll(t.Context(), 3) }()
		synctest.Wait()
		a.Applied(3, 0)
		synctest.Wait()
		if len(wait) > 0 {
			t.Fatal("returned before b holds it")
		}
		b.Closed(nil)
		if err := <-wait; err != nil {
			t.Error(err)
		}
		if len(all) > 0 {
			t.Fatal("returned although b and gone do not hold it")
		}
		b, pb = r.connect("b")
		r.send(b, pb, 4)
		b.Applied(4, 0)
		r.observer.Forget("gone")
		if err := <-all; err != nil {
			t.Error(err)
		}
		if len(r.observer.waiters) != 0 {
			t.Errorf("%d waiters left", len(r.observer.waiters))
		}
	})
}

// TestWaitEnds holds that a wait that ends names who is missing, and leaves nothing behind.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 12 {
			s, p := r.connect("n" + string(rune('a'+i)))
			r.send(s, p, 1)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.observer.Wait(ctx, 1)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "na, nb") || !strings.Contains(err.Error(), "2 more nodes") {
			t.Errorf("error %v, want the names and the deadline", err)
		}
		if len(r.observer.waiters) != 0 {
			t.Errorf("%d waiters left", len(r.observer.waiters))
		}
	})
}

// TestForget holds that a node that no longer exists is dropped, at the end of its stream if it has one.
func TestForget(t *testing.T) {
	r := newRig(t)
	s, p := r.connect("a")
	r.send(s, p, 1)
	r.exist = nil
	r.observer.Forget("a")
	r.node("a")
	s.Closed(nil)
	if n := len(r.observer.Status().Nodes); n != 0 {
		t.Errorf("%d nodes left", n)
	}
	r.observer.Forget("never seen")
}

// TestMetrics holds the names and that what is counted moves.
func TestMetrics(t *testing.T) {
	r := newRig(t)
	a, pa := r.connect("a")
	b, pb := r.connect("b")
	r.tables.revision = 9
	r.observer.Published(9, r.now)
	for range 10 { // more than are measured at once
		r.observer.Published(9, r.now)
	}
	r.send(a, pa, 9)
	r.send(b, pb, 9)
	r.now = r.now.Add(20 * time.Millisecond)
	a.Applied(9, time.Millisecond)
	r.now = r.now.Add(20 * time.Millisecond)
	b.Failed(9, "no")
	want := `
# HELP fairlead_agents_connected Agents with a stream.
# TYPE fairlead_agents_connected gauge
fairlead_agents_connected 2
# HELP fairlead_agents_failing Connected agents whose last report was an error.
# TYPE fairlead_agents_failing gauge
fairlead_agents_failing 1
# HELP fairlead_agents_lagging Connected agents that do not hold everything published.
# TYPE fairlead_agents_lagging gauge
fairlead_agents_lagging 1
# HELP fairlead_epoch Epoch of the revisions.
# TYPE fairlead_epoch gauge
fairlead_epoch 7
# HELP fairlead_lag_seconds Age of the oldest revision that a connected agent does not hold.
# TYPE fairlead_lag_seconds gauge
fairlead_lag_seconds 0.04
# HELP fairlead_revision Number of the last revision.
# TYPE fairlead_revision gauge
fairlead_revision 9
# HELP fairlead_revision_everywhere Revision up to which every connected node holds everything.
# TYPE fairlead_revision_everywhere gauge
fairlead_revision_everywhere 0
`
	names := []string{
		"fairlead_agents_connected", "fairlead_agents_failing", "fairlead_agents_lagging", "fairlead_epoch",
		"fairlead_lag_seconds", "fairlead_revision", "fairlead_revision_everywhere",
	}
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	b.Applied(9, time.Millisecond)
	if got := histogram(t, r.registry, "fairlead_propagation_seconds"); got != 2 {
		t.Errorf("%d propagations, want one for each node", got)
	}
	if got := histogram(t, r.registry, "fairlead_propagation_last_node_seconds"); got != maxSamples {
		t.Errorf("%d samples of the last node, want %d", got, maxSamples)
	}
	if r.observer.sampled != 0 || len(r.observer.waiters) != 0 {
		t.Errorf("%d samples and %d waiters left", r.observer.sampled, len(r.observer.waiters))
	}
	if problems, err := testutil.GatherAndLint(r.registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// histogram returns how often a histogram was fed.
func histogram(t *testing.T, g prometheus.Gatherer, name string) uint64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestNodesAndAgentsThatDoNotMatch holds that a Node without an agent and an agent without a Node are both seen.
func TestNodesAndAgentsThatDoNotMatch(t *testing.T) {
	r := newRig(t)
	s, p := r.connect("typo")
	r.send(s, p, 1)
	s.Applied(1, 0)
	r.exist = []string{"a"}
	if n := r.node("a"); n.state() != "no agent yet" {
		t.Errorf("a Node without an agent: %q", n.state())
	}
	if n := r.node("typo"); n.state() != "no such Node" {
		t.Errorf("an agent without a Node: %q", n.state())
	}
	var text strings.Builder
	if err := r.observer.Status().Write(&text, r.now); err != nil || !strings.Contains(text.String(), "held by 1 of 1 connected agents; 1 nodes have no agent") {
		t.Errorf("%v\n%s", err, text.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := r.observer.WaitAll(ctx, 1); err == nil || !strings.Contains(err.Error(), "missing on a:") {
		t.Errorf("waiting for all Nodes: %v", err)
	}
}

// TestMerge holds that a node is as the replica has it that its agent follows.
func TestMerge(t *testing.T) {
	early, late := time.Unix(1000, 0), time.Unix(2000, 0)
	got := Merge([]Status{
		{Epoch: 7, Revision: 3, Nodes: []NodeStatus{
			{Node: "b", Exists: true}, {Node: "a", Exists: true, Connected: true, Current: true, Since: early}, {Node: "c", Exists: true, Since: early},
		}},
		{Epoch: 9, Revision: 30, Nodes: []NodeStatus{
			{Node: "a", Exists: true, Since: late}, {Node: "b", Exists: true, Connected: true, Error: "no"}, {Node: "c", Exists: true, Since: late, Holds: 30},
		}},
	})
	want := Status{Epoch: 7, Revision: 3, Connected: 2, Current: 1, Failing: 1, Missing: 1, Nodes: []NodeStatus{
		{Node: "a", Exists: true, Connected: true, Current: true, Since: early},
		{Node: "b", Exists: true, Connected: true, Error: "no"},
		{Node: "c", Exists: true, Since: late, Holds: 30},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestOutstandingIsBounded holds that an agent that never reports costs a bounded amount of memory.
func TestOutstandingIsBounded(t *testing.T) {
	r := newRig(t)
	s, p := r.connect("a")
	for n := range uint64(1000) {
		r.send(s, p, n+1)
	}
	if n := len(r.observer.nodes["a"].outstanding); n != maxOutstanding {
		t.Errorf("%d remembered", n)
	}
	s.Applied(1000, 0)
	if n := r.node("a"); n.LagSeconds != 0 || n.Holds != 1000 {
		t.Errorf("%+v", n)
	}
}

// TestHandler holds what people and programs are told.
func TestHandler(t *testing.T) {
	r := newRig(t)
	a, pa := r.connect("node-a")
	r.connect("node-b")
	r.send(a, pa, 1)
	a.Applied(1, 0)
	for _, tc := range []struct {
		path string
		code int
		want string
	}{
		{"/debug/fairlead/status", 200, "held by 1 of 2 connected agents"},
		{"/debug/fairlead/status", 200, "node-a  current"},
		{"/debug/fairlead/status?format=json", 200, `"node":"node-b"`},
		{"/debug/fairlead/status?format=xml", 400, "want text or json"},
		{"/debug/fairlead/status?wait=soon", 400, "wait \"soon\""},
		{"/debug/fairlead/status?wait=1ms", 504, "missing on node-b"},
		{"/debug/fairlead/table?node=node-a", 200, "service default/web:/TCP/IPv4 cluster-ip=10.96.0.1"},
		{"/debug/fairlead/table", 400, "node: missing"},
	} {
		w := httptest.NewRecorder()
		r.observer.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.path, nil))
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: %d %s, want %d with %q", tc.path, w.Code, w.Body, tc.code, tc.want)
		}
		if strings.Contains(tc.path, "json") {
			var s Status
			if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || len(s.Nodes) != 2 || s.Epoch != 7 {
				t.Errorf("decoded %+v, %v", s, err)
			}
		}
	}
	r.tables.err = errors.New("broken")
	w := httptest.NewRecorder()
	r.observer.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/fairlead/table?node=a", nil))
	if w.Code != 500 || strings.TrimSpace(w.Body.String()) != "broken" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestNew holds that a Config that cannot work is refused.
func TestNew(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no error without Tables and Registry")
	}
	r := newRig(t)
	if _, err := New(Config{Tables: r.tables, Registry: r.registry}); err == nil {
		t.Error("no error for metrics registered twice")
	}
}
