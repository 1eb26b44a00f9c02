package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/store"
	"github.com/fairlead/fairlead/proto/fwd"
)

var errInjected = errors.New("injected")

// kernel is a dataplane that believes what it is told: it looks at what the delta names and nowhere else, so that a delta
// that leaves something out shows in its content.
type kernel struct {
	mu      sync.Mutex
	content map[fwd.ID]string
	node    fwd.NodeFacts
	// before is the table of the last success, which Sync must be given; nil before the first.
	before *fwd.Table
	deltas []dataplane.Delta
	audits int
	broken []string // uses that the interface forbids
	// fault is asked before each write; a true answer makes Sync fail there.
	fault func() bool
	// block, if set, is what Sync waits for; auditBlock what an audit's reading waits for, unless its context ends.
	block, auditBlock chan struct{}
	busy              bool
	// readTakes is how long an audit reads at each Service port; quiet: there is nothing to read; readError is what becomes of
	// reading, if set.
	readTakes time.Duration
	quiet     bool
	readError error
	reading   bool
	// starves: reading begins anew when something is written.
	starves bool
	// written are the Service ports that were written since the last audit began.
	written map[fwd.ID]bool
	foreign chan struct{}
}

var (
	_ dataplane.Interface = (*kernel)(nil)
	_ Watcher             = (*kernel)(nil)
)

func newKernel() *kernel {
	return &kernel{content: map[fwd.ID]string{}, fault: func() bool { return false }, foreign: make(chan struct{}, 1)}
}

func (k *kernel) Name() string                          { return "kernel" }
func (k *kernel) Cleanup(context.Context) error         { return nil }
func (k *kernel) Watch(context.Context) <-chan struct{} { return k.foreign }
func (k *kernel) enter(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy {
		k.broken = append(k.broken, what+" while another call runs")
	}
	k.busy = true
}

// setFault takes effect at the next write.
func (k *kernel) setFault(f func() bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = f
}

func (k *kernel) audited() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.audits
}

func (k *kernel) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = false
}

func (k *kernel) Sync(_ context.Context, before, now *fwd.Table, delta dataplane.Delta) (dataplane.Report, error) {
	k.enter("Sync")
	defer k.leave()
	if k.block != nil {
		<-k.block
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deltas = append(k.deltas, delta)
	if before != k.before && (k.before != nil || before.Len() != 0) {
		k.broken = append(k.broken, "before is not the table of the last success")
	}
	ids := delta.Ports
	if delta.All {
		ids = nil
		for id := range now.Ports() {
			ids = append(ids, id)
		}
		for id := range k.content {
			ids = append(ids, id)
		}
	}
	writes := 0
	for _, id := range ids {
		want := ""
		if p, ok := now.Port(id); ok {
			want = render(p)
		}
		if k.content[id] == want {
			continue
		}
		if k.fault() {
			return dataplane.Report{}, errInjected
		}
		writes++
		if k.written != nil {
			k.written[id] = true
		}
		if k.content[id] = want; want == "" {
			delete(k.content, id)
		}
	}
	if k.fault() {
		return dataplane.Report{}, errInjected
	}
	if delta.Node || delta.All {
		k.node = now.Node()
	}
	k.before = now
	return dataplane.Report{Writes: writes}, nil
}

// kernelAudit is an audit of it. It reads one Service port after the other, as a real one does.
type kernelAudit struct {
	kernel   *kernel
	expected *fwd.Table
	written  map[fwd.ID]bool
	found    []fwd.ID
}

func (k *kernel) Audit() dataplane.Audit {
	k.enter("Audit")
	defer k.leave()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.audits++
	if k.quiet {
		return nil
	}
	if k.reading {
		k.broken = append(k.broken, "Audit while another one reads")
	}
	k.written = map[fwd.ID]bool{}
	return &kernelAudit{kernel: k, expected: k.before, written: k.written}
}

func (c *kernelAudit) Read(ctx context.Context) error {
	k := c.kernel
	reading := func(is bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.reading = is
	}
	reading(true)
	defer reading(false)
	ports := slices.Collect(maps.Values(maps.Collect(c.expected.Ports())))
	for i, syncs := 0, len(k.syncs()); i < len(ports); i++ {
		if now := len(k.syncs()); k.starves && now != syncs {
			i, syncs = 0, now
		}
		id, p := ports[i].ID(), ports[i]
		k.mu.Lock()
		block, took, err := k.auditBlock, k.readTakes, k.readError
		k.mu.Unlock()
		if err != nil {
			return err
		}
		pause := time.After(took)
		if block != nil {
			pause = nil
		}
		select {
		case <-block:
		case <-pause:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.mu.Lock()
		if k.content[id] != render(p) {
			c.found = append(c.found, id)
		}
		k.mu.Unlock()
	}
	return nil
}

func (c *kernelAudit) Starves() bool { return c.kernel.starves }

func (c *kernelAudit) Differences() []dataplane.Difference {
	c.kernel.enter("Differences")
	defer c.kernel.leave()
	var differences []dataplane.Difference
	for _, id := range c.found {
		if p, ok := c.expected.Port(id); ok && !c.written[id] {
			differences = append(differences, dataplane.Difference{Object: p.PortName.String(), Problem: "changed"})
		}
	}
	return differences
}

func render(p *fwd.Port) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v %d", p.PortName, p.ClusterIP, p.Port)
	for _, s := range fwd.Scopes() {
		fmt.Fprintf(&b, " %v", p.List(s))
	}
	return b.String()
}

// holds reports how the content differs from a table; "" is not at all.
func (k *kernel) holds(t *fwd.Table) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for id, p := range t.Ports() {
		n++
		if k.content[id] != render(p) {
			return fmt.Sprintf("%v: have %q, want %q", p.PortName, k.content[id], render(p))
		}
	}
	if n != len(k.content) {
		return fmt.Sprintf("%d Service ports, want %d", len(k.content), n)
	}
	if got, want := fmt.Sprint(k.node), fmt.Sprint(t.Node()); got != want {
		return fmt.Sprintf("node %s, want %s", got, want)
	}
	return strings.Join(k.broken, "; ")
}

func (k *kernel) syncs() []dataplane.Delta {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.deltas)
}

// health records what it is told.
type health struct {
	mu    sync.Mutex
	calls []string
}

func (h *health) Pending()              { h.add("pending") }
func (h *health) Updated(fwd.NodeFacts) { h.add("updated") }
func (h *health) add(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, s)
}

func (h *health) last() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.calls) == 0 {
		return ""
	}
	return h.calls[len(h.calls)-1]
}

// bench is a Loop with all that surrounds it, in a bubble of fake time.
type bench struct {
	kernel   *kernel
	store    *store.Store
	health   *health
	registry *prometheus.Registry
	metrics  *Metrics
	table    *fwd.Table
	revision uint64
	log      *bytes.Buffer
	due      chan struct{}
	demand   chan chan<- Inspection

	mu       sync.Mutex
	outcomes []Outcome
}

type storeSource struct{ *store.Store }

func (s storeSource) Take() (Update, bool) {
	v, touched, ok := s.Store.Take()
	return Update{Table: v.Table, Epoch: v.Epoch, Revision: v.Revision, Cause: v.Cause, Touched: touched}, ok
}

func newBench(t *testing.T, steps ...Step) *bench {
	t.Helper()
	b := &bench{
		kernel: newKernel(), store: store.New(), health: &health{}, registry: prometheus.NewRegistry(), table: &fwd.Table{},
		log: &bytes.Buffer{}, due: make(chan struct{}), demand: make(chan chan<- Inspection),
	}
	b.metrics = NewMetrics(b.registry)
	l, err := New(Config{
		Dataplane: b.kernel, Source: storeSource{b.store}, Steps: steps, Due: b.due, Inspect: b.demand, Health: b.health, Report: b.report,
		Metrics: b.metrics, Logger: slog.New(slog.NewTextHandler(b.log, nil)),
		AuditInterval: 3 * time.Second, SyncPeriod: 30 * time.Second, ResyncInterval: 10 * time.Minute,
		RetryBase: 100 * time.Millisecond, RetryMax: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

func (b *bench) report(o Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes = append(b.outcomes, o)
}

func (b *bench) reported() []Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.outcomes)
}

// last is the last Outcome, with a revision of 0 if there is none.
func (b *bench) last() Outcome {
	if all := b.reported(); len(all) > 0 {
		return all[len(all)-1]
	}
	return Outcome{}
}

// put makes rows the table and hands it to the loop as the next revision.
func (b *bench) put(t *testing.T, r rows) {
	t.Helper()
	parts := map[fwd.Scope]*fwd.Part{}
	for s, byKey := range r {
		var put []fwd.Row
		for _, row := range byKey {
			put = append(put, row)
		}
		parts[s] = (&fwd.Part{}).With(nil, put)
	}
	want, err := fwd.NewTable(parts)
	if err != nil {
		t.Fatal(err)
	}
	next, touched, err := b.table.Apply(fwd.DiffTables(b.table, want))
	if err != nil {
		t.Fatal(err)
	}
	b.table = next
	b.revision++
	b.store.Put(store.Version{Table: next, Epoch: 1, Revision: b.revision, Cause: time.Now()}, touched)
}

// rows is a table under construction.
type rows map[fwd.Scope]map[string]fwd.Row

func newRows() rows {
	r := rows{}
	for _, s := range fwd.Scopes() {
		r[s] = map[string]fwd.Row{}
	}
	return r
}

func (r rows) add(s fwd.Scope, row fwd.Row) rows {
	r[s][row.Key] = row
	return r
}

func servicePort(n int) fwd.ServicePort {
	return fwd.ServicePort{
		PortName:  fwd.PortName{Namespace: "default", Name: fmt.Sprintf("s%d", n), Protocol: fwd.TCP},
		ClusterIP: netip.AddrFrom4([4]byte{10, 96, 0, byte(n + 1)}), Port: 80,
	}
}

func backend(n, host int) fwd.Row {
	return fwd.EncodeBackend(servicePort(n).ID(), fwd.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, byte(host + 1)}), 80)})
}

// mutate makes one random change.
func (r rows) mutate(rng *rand.Rand) {
	n := rng.IntN(8)
	s, row := fwd.Common, fwd.EncodePort(servicePort(n))
	switch rng.IntN(8) {
	case 0, 1:
	case 2:
		s, row = fwd.Node, fwd.EncodeNode(fwd.NodeFacts{Deleting: rng.IntN(2) == 0})
	default:
		s, row = fwd.Scopes()[rng.IntN(3)], backend(n, rng.IntN(6))
	}
	if _, held := r[s][row.Key]; held && rng.IntN(2) == 0 {
		delete(r[s], row.Key)
		return
	}
	r.add(s, row)
}
