package nftables

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/agent/internal/proxy"
	"github.com/fairlead/fairlead/proto/fwd"
)

// audited is a backend whose audits are counted, and whose repairs are told.
type audited struct {
	*Backend
	audits   atomic.Int64
	repaired chan struct{}
}

func (a *audited) Sync(ctx context.Context, before, now *fwd.Table, delta dataplane.Delta) (dataplane.Report, error) {
	r, err := a.Backend.Sync(ctx, before, now, delta)
	if err == nil && r.Writes > 0 {
		a.repaired <- struct{}{}
	}
	return r, err
}

func (a *audited) Audit() dataplane.Audit {
	a.audits.Add(1)
	return a.Backend.Audit()
}

// oneTable is a proxy.Source that has one table to give, and a proxy.Health that nobody asks.
type oneTable struct {
	table   *fwd.Table
	changed chan struct{}
}

func (o *oneTable) Changed() <-chan struct{} { return o.changed }
func (o *oneTable) Pending()                 {}
func (o *oneTable) Updated(fwd.NodeFacts)    {}
func (o *oneTable) Take() (proxy.Update, bool) {
	_, touched, err := (&fwd.Table{}).Apply(fwd.DiffTables(&fwd.Table{}, o.table))
	return proxy.Update{Table: o.table, Epoch: 1, Revision: 1, Touched: touched}, err == nil
}

// follow runs the agent's own loop in the namespace until the test ends, and returns when the kernel holds the table. It
// looks at the kernel when it is told of a change, and never by the clock.
func follow(t *testing.T, n *node, table *fwd.Table) *audited {
	t.Helper()
	d := &audited{Backend: backendIn(t, n.Namespace, Defaults()), repaired: make(chan struct{}, 10)}
	source, outcomes := &oneTable{table, make(chan struct{}, 1)}, make(chan proxy.Outcome, 10)
	source.changed <- struct{}{}
	loop, err := proxy.New(proxy.Config{
		Dataplane: d, Source: source, Health: source, Metrics: proxy.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		Report:        func(o proxy.Outcome) { outcomes <- o },
		AuditInterval: time.Hour, SyncPeriod: time.Hour, ResyncInterval: time.Hour, RetryBase: 10 * time.Millisecond, RetryMax: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Do(func() error { loop.Run(ctx); return nil }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if o := <-outcomes; o.Err != nil {
		t.Fatal(o.Err)
	}
	<-d.repaired
	return d
}

// repair damages the kernel and returns how long it then takes until it is as it should be.
func (a *audited) repair(t *testing.T, n *node, edit, want string) time.Duration {
	t.Helper()
	if err := n.nft(edit)(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	select {
	case <-a.repaired:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: not repaired:\n%s", edit, n.dump(t))
	}
	took := time.Since(began)
	if got := n.dump(t); got != want {
		t.Fatalf("%s: repaired to\n%s", edit, got)
	}
	return took
}

// manyKinds is a table with a trace's Services and many plain ones.
func manyKinds(t *testing.T) *fwd.Table {
	t.Helper()
	files, err := trace.Load(traces)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(files, func(f trace.File) bool { return f.Name == "affinity" && f.Family == fwd.IPv4 })
	rows := scaled(t, 1000, 2).Part(fwd.Common)
	var put []fwd.Row
	for row := range files[i].Table.Part(fwd.Common).Rows() {
		put = append(put, row)
	}
	table, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{fwd.Common: rows.With(nil, put), fwd.Node: files[i].Table.Part(fwd.Node)})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestRepairs holds that the agent's loop repairs whatever others do to our tables, within a second, by the kernel's own
// notifications.
func TestRepairs(t *testing.T) {
	n := newNode(t)
	d := follow(t, n, manyKinds(t))
	want := n.dump(t)
	var took []time.Duration
	for _, edit := range []string{
		"flush ruleset",
		"delete table ip fairlead",
		"delete table ip6 fairlead",
		"flush chain ip fairlead services",
		"flush chain ip fairlead pick; delete chain ip fairlead pick-2",
		"insert rule ip fairlead services accept",
		"flush map ip fairlead endpoints",
		"flush set ip6 fairlead internal; add element ip6 fairlead internal { fd00::1 . tcp . 1 }",
		"delete element ip fairlead internal { 10.96.0.5 . tcp . 80 }",
		"add table ip fairlead { flags dormant; }",
	} {
		took = append(took, d.repair(t, n, edit, want))
		t.Logf("%s: repaired after %v", edit, took[len(took)-1])
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > time.Second {
		t.Errorf("repairs take %v", median)
	}
}

// TestChurnOfOthers holds that what others do to their own tables, however much, makes us look at nothing, and that a change
// of ours in the middle of it is found all the same.
func TestChurnOfOthers(t *testing.T) {
	n := newNode(t)
	d := follow(t, n, manyKinds(t))
	if err := n.nft(foreignRules)(); err != nil {
		t.Fatal(err)
	}
	want := n.dump(t)
	churn := func() {
		for round := range 20 {
			if err := n.nft(foreignElements("add", 200, round) + foreignElements("delete", 200, round))(); err != nil {
				t.Error(err)
			}
		}
	}
	churn()
	if audits := d.audits.Load(); audits > 0 {
		t.Errorf("%d audits for others' changes", audits)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); churn() }()
	if err := n.nft("flush chain ip fairlead services")(); err != nil {
		t.Fatal(err)
	}
	<-d.repaired
	<-ended
	if got := n.dump(t); got != want {
		t.Errorf("repaired to\n%s", got)
	}
}

// foreignElements adds elements to a set of foreignRules, or deletes them.
func foreignElements(verb string, count, round int) string {
	var keys []string
	for i := range count {
		keys = append(keys, fmt.Sprintf("10.%d.%d.%d", 2+round, i>>8, i&0xff))
	}
	return verb + " element inet firewall what { " + strings.Join(keys, ", ") + " }\n"
}

// TestLostNotifications holds that more notifications than the buffer takes are a sign to look, not more often than once in
// lossRest, and that later ones are heard again.
func TestLostNotifications(t *testing.T) {
	n := newNode(t)
	d := backendIn(t, n.Namespace, Defaults())
	synced(t, d, everything(parseTable(t, oneService)))
	if err := n.nft(foreignRules)(); err != nil {
		t.Fatal(err)
	}
	var changes <-chan struct{}
	const smallest = 1 // the kernel makes it some 2 KiB
	if err := n.Do(func() error { changes = d.watch(t.Context(), smallest); return nil }); err != nil {
		t.Fatal(err)
	}
	told := func(what string) {
		t.Helper()
		select {
		case _, open := <-changes:
			if !open {
				t.Fatalf("%s: the watch ended", what)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: not told", what)
		}
	}
	began, signs := time.Now(), 0
	for round := 0; time.Since(began) < lossRest/2; round++ {
		if err := n.nft(foreignElements("add", 2000, round%100) + foreignElements("delete", 2000, round%100))(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changes:
			signs++
		default:
		}
	}
	if took := time.Since(began); signs > 1+int(took/lossRest) {
		t.Errorf("%d signs within %v", signs, took)
	}
	if signs == 0 {
		told("the first loss")
	}
	told("a loss soon after")
	if waited := time.Since(began); waited < lossRest {
		t.Errorf("told of a second loss after %v", waited)
	}
	if err := n.nft("flush chain ip fairlead services")(); err != nil {
		t.Fatal(err)
	}
	told("a change of ours after losses")
}

// TestAuditBesideWrites holds that an audit reads while Syncs go on, takes nothing that they write for somebody else's, and
// finds what somebody else did.
func TestAuditBesideWrites(t *testing.T) {
	n := newNode(t)
	d := backendIn(t, n.Namespace, Defaults())
	const services = 3000
	table := scaled(t, services, 2)
	synced(t, d, everything(table))
	writes, extra := 0, map[int]bool{}
	audit := func() (ds []dataplane.Difference, beside bool) {
		t.Helper()
		d.generation.forget()
		a := d.Audit()
		read := make(chan error)
		go func() { read <- a.Read(t.Context()) }()
		for {
			select {
			case err := <-read:
				if err != nil {
					t.Fatal(err)
				}
				return a.Differences(), beside
			default:
			}
			i := 1 + writes*7%(services-1)
			p := scaledPort(i)
			row := fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: backendAddr(100_000 + i)})
			next, touched := changed(t, table, []string{row.Key}, nil)
			if extra[i] = !extra[i]; extra[i] {
				next, touched = changed(t, table, nil, []fwd.Row{row})
			}
			synced(t, d, step{table, next, dataplane.Delta{Changed: touched}})
			table, beside = next, true
			writes++
		}
	}
	beside := 0
	for range 8 {
		ds, written := audit()
		if len(ds) > 0 {
			t.Fatalf("our own writes are found: %v", ds)
		}
		if written {
			beside++
		}
	}
	if beside == 0 || writes < 100 {
		t.Errorf("%d audits of 8 had writes beside them, %d in all", beside, writes)
	}
	t.Logf("%d writes beside %d audits", writes, beside)
	if err := n.nft("delete element ip fairlead internal { " + scaledPort(0).ClusterIP.String() + " . tcp . 80 }")(); err != nil {
		t.Fatal(err)
	}
	if ds, _ := audit(); len(ds) != 1 || !strings.Contains(ds[0].Object, scaledPort(0).ClusterIP.String()) {
		t.Errorf("of a missing element: %v", ds)
	}
	if d.generation.known {
		t.Error("the next audit would read nothing")
	}
}
