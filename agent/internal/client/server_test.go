package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// heartbeat is what the controller of a test announces.
const heartbeat = 200 * time.Millisecond

type serverStream = grpc.BidiStreamingServer[fairleadv1.FollowRequest, fairleadv1.FollowResponse]

// call is one stream of an agent that a test serves by hand.
type call struct {
	t      *testing.T
	stream serverStream
	hello  *fairleadv1.Hello
	// reports and answers get what comes after the hello; reports are closed when the agent has gone.
	reports chan *fairleadv1.Report
	answers chan *fairleadv1.Answer
	done    chan error
}

// controller is a real gRPC server; tests take its streams one by one and speak for it.
type controller struct {
	fairleadv1.UnimplementedForwardingServer
	address string
	server  *grpc.Server
	calls   chan *call
	stopped chan struct{}
}

func newController(t *testing.T, options ...grpc.ServerOption) *controller {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &controller{address: l.Addr().String(), server: grpc.NewServer(options...), calls: make(chan *call), stopped: make(chan struct{})}
	fairleadv1.RegisterForwardingServer(c.server, c)
	served := make(chan error, 1)
	go func() { served <- c.server.Serve(l) }()
	t.Cleanup(func() {
		close(c.stopped)
		c.server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // stopped before it began
			t.Errorf("serve: %v", err)
		}
	})
	return c
}

func (c *controller) Follow(s serverStream) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	k := &call{stream: s, hello: m.GetHello(), reports: make(chan *fairleadv1.Report, 100), answers: make(chan *fairleadv1.Answer, 100), done: make(chan error, 1)}
	select {
	case c.calls <- k:
	case <-c.stopped:
		return nil
	case <-s.Context().Done():
		return nil
	}
	go func() {
		defer close(k.reports)
		for {
			m, err := s.Recv()
			if err != nil {
				return
			}
			if m.GetAnswer() != nil {
				k.answers <- m.GetAnswer()
				continue
			}
			k.reports <- m.GetReport()
		}
	}()
	select {
	case err := <-k.done:
		return err
	case <-c.stopped:
		return nil
	case <-s.Context().Done():
		return nil
	}
}

// accept waits for the next stream.
func (c *controller) accept(t *testing.T) *call {
	t.Helper()
	select {
	case k := <-c.calls:
		k.t = t
		return k
	case <-time.After(10 * time.Second):
		t.Fatal("no agent came")
		return nil
	}
}

// welcomed accepts a stream and welcomes it.
func (c *controller) welcomed(t *testing.T, epoch uint64) *call {
	t.Helper()
	k := c.accept(t)
	k.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{
		Epoch: epoch, Version: "test", HeartbeatIntervalMs: uint32(heartbeat.Milliseconds()),
	}}})
	return k
}

// send ignores errors: an agent may have gone, which is what some tests are about.
func (k *call) send(m *fairleadv1.FollowResponse) { _ = k.stream.Send(m) }

func (k *call) revision(rs ...*fairleadv1.Revision) {
	for _, r := range rs {
		k.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Revision{Revision: r}})
	}
}

func (k *call) beat(number, digest uint64) {
	k.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Heartbeat{Heartbeat: &fairleadv1.Heartbeat{
		Number: number, Digest: digest,
	}}})
}

// gone waits until the agent has closed the stream.
func (k *call) gone() {
	k.t.Helper()
	select {
	case <-k.stream.Context().Done():
	case <-time.After(10 * time.Second):
		k.t.Fatal("the agent keeps the stream")
	}
}

// held returns the digests that the agent's hello tells.
func (k *call) held() [3]uint64 {
	h := k.hello.GetHeld()
	return [3]uint64{h.GetCommonDigest(), h.GetZoneDigest(), h.GetNodeDigest()}
}

func digests(t *fwd.Table) [3]uint64 {
	var d [3]uint64
	for i, s := range fwd.Scopes() {
		d[i] = t.Part(s).Digest()
	}
	return d
}

// keeper is a Store that remembers all, and checks that what is said to be touched is what differs.
type keeper struct {
	mu      sync.Mutex
	puts    []Version
	arrived chan Version
	wrong   string
}

func newKeeper() *keeper { return &keeper{arrived: make(chan Version, 1000)} }

func (k *keeper) Current() (Version, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.puts) == 0 {
		return Version{}, false
	}
	return k.puts[len(k.puts)-1], true
}

func (k *keeper) Put(v Version, touched fwd.Changed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := &fwd.Table{}
	if n := len(k.puts); n > 0 {
		before = k.puts[n-1].Table
	}
	_, want, err := before.Apply(fwd.DiffTables(before, v.Table))
	if err != nil || fmt.Sprint(want) != fmt.Sprint(touched) {
		k.wrong = fmt.Sprintf("touched %v, want %v (%v)", touched, want, err)
	}
	k.puts = append(k.puts, v)
	k.arrived <- v
}

// next waits for the next Put.
func (k *keeper) next(t *testing.T) Version {
	t.Helper()
	select {
	case v := <-k.arrived:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("no table arrived")
		return Version{}
	}
}

func (k *keeper) none(t *testing.T) {
	t.Helper()
	select {
	case v := <-k.arrived:
		t.Fatalf("revision %d arrived", v.Revision)
	default:
	}
}

func plaintext() (credentials.TransportCredentials, error) { return insecure.NewCredentials(), nil }

// bench is a running Client.
type bench struct {
	*Client
	store    *keeper
	registry *prometheus.Registry
	log      *lockedBuffer
	stop     func()
}

// start runs a client; change may alter its Config first.
func start(t *testing.T, change func(*Config), controllers ...*controller) *bench {
	t.Helper()
	b := &bench{store: newKeeper(), registry: prometheus.NewRegistry(), log: &lockedBuffer{}}
	cfg := Config{
		Node: "n1", Version: "v1", Mode: "iptables", Credentials: plaintext, Store: b.store,
		Metrics: NewMetrics(b.registry), Logger: slog.New(slog.NewTextHandler(b.log, nil)),
		Timing: Timing{RetryBase: time.Millisecond, RetryMax: 20 * time.Millisecond},
	}
	var addresses Fixed
	for _, c := range controllers {
		addresses = append(addresses, c.address)
	}
	cfg.Directory = addresses
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.Client, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(func() {
		b.stop()
		if b.store.wrong != "" {
			t.Error(b.store.wrong)
		}
	})
	return b
}

func (b *bench) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if m := f.GetMetric()[0]; f.GetName() == name {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rows is a table under construction.
type rows map[fwd.Scope]map[string]fwd.Row

func (r rows) table(t testing.TB) *fwd.Table {
	t.Helper()
	parts := map[fwd.Scope]*fwd.Part{}
	for s, byKey := range r {
		var put []fwd.Row
		for _, row := range byKey {
			put = append(put, row)
		}
		parts[s] = (&fwd.Part{}).With(nil, put)
	}
	table, err := fwd.NewTable(parts)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// mutate makes one random change.
func (r rows) mutate(rng *rand.Rand) {
	p := servicePort(rng.IntN(20))
	s, row := fwd.Common, fwd.EncodePort(p)
	if rng.IntN(3) > 0 {
		s = fwd.Scopes()[rng.IntN(3)]
		row = fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(1 + rng.IntN(5))}), 80)})
	}
	if r[s] == nil {
		r[s] = map[string]fwd.Row{}
	}
	if _, held := r[s][row.Key]; held {
		delete(r[s], row.Key)
		return
	}
	r[s][row.Key] = row
}

func servicePort(n int) fwd.ServicePort {
	return fwd.ServicePort{
		PortName:  fwd.PortName{Namespace: "default", Name: fmt.Sprintf("s%d", n), Protocol: fwd.TCP},
		ClusterIP: netip.AddrFrom4([4]byte{10, 96, 0, byte(n + 1)}), Port: 80,
	}
}

// someTable has n random changes.
func someTable(t testing.TB, seed uint64, n int) *fwd.Table {
	t.Helper()
	rng, r := rand.New(rand.NewPCG(seed, 3)), rows{}
	for range n {
		r.mutate(rng)
	}
	return r.table(t)
}

// snapshot is the revision that makes any table equal to t.
func snapshot(t *fwd.Table) *fwd.Change {
	var c fwd.Change
	for _, s := range fwd.Scopes() {
		part := t.Part(s).Snapshot()
		c.Parts[s] = &part
	}
	return &c
}

// split splits a change into messages of at most rowsEach rows.
func split(number uint64, c *fwd.Change, rowsEach int) []*fairleadv1.Revision {
	rs := []*fairleadv1.Revision{{Number: number, More: true}}
	room := rowsEach
	for _, s := range fwd.Scopes() {
		p := c.Parts[s]
		if p == nil {
			continue
		}
		m := p.Proto()
		whole := &fairleadv1.Part{Replace: m.Replace, Digest: m.Digest}
		set(rs[len(rs)-1], s, whole)
		whole.ReplaceBuckets = m.ReplaceBuckets
		for len(m.Remove)+len(m.Put) > 0 {
			if room == 0 {
				rs, room = append(rs, &fairleadv1.Revision{Number: number, More: true}), rowsEach
				whole = &fairleadv1.Part{Digest: m.Digest}
				set(rs[len(rs)-1], s, whole)
			}
			room--
			if len(m.Remove) > 0 {
				whole.Remove, m.Remove = append(whole.Remove, m.Remove[0]), m.Remove[1:]
				continue
			}
			whole.Put, m.Put = append(whole.Put, m.Put[0]), m.Put[1:]
		}
	}
	rs[len(rs)-1].More = false
	return rs
}

func set(r *fairleadv1.Revision, s fwd.Scope, p *fairleadv1.Part) {
	switch s {
	case fwd.Common:
		r.Common = p
	case fwd.Zone:
		r.Zone = p
	case fwd.Node:
		r.Node = p
	}
}
