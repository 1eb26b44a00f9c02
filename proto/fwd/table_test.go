package fwd_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

func mustTable(t *testing.T, w world) *fwd.Table {
	t.Helper()
	table, err := fwd.NewTable(w.parts())
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func text(t *testing.T, table *fwd.Table) string {
	t.Helper()
	var b strings.Builder
	if err := fwd.WriteText(&b, table); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestApplyDiff holds Apply(a, Diff(a, b)) = b, digest(Apply) = incremental digest, and that what is reported as changed is
// what the typed view shows to have changed, over random histories.
func TestApplyDiff(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		a := newWorld()
		a.mutate(rng, rng.IntN(400))
		b := a.clone()
		b.mutate(rng, rng.IntN(60))
		ta, tb := mustTable(t, a), mustTable(t, b)

		got, changed, err := ta.Apply(fwd.DiffTables(ta, tb))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sameTable(t, seed, got, tb)
		sum := uint64(0)
		for _, s := range fwd.Scopes() {
			for r := range got.Part(s).Rows() {
				sum += r.Sum()
			}
		}
		if sum != got.Digest() {
			t.Fatalf("seed %d: digest %x, rows sum to %x", seed, got.Digest(), sum)
		}
		checkChanged(t, ta, tb, changed)
		if back := fwd.DiffTables(got, tb); back != (fwd.Change{}) {
			t.Fatalf("seed %d: equal tables differ by %+v", seed, back)
		}
	}
}

func sameTable(t *testing.T, seed uint64, got, want *fwd.Table) {
	t.Helper()
	if g, w := text(t, got), text(t, want); g != w {
		t.Fatalf("seed %d:\n%s\nwant\n%s", seed, g, w)
	}
	if got.Digest() != want.Digest() || got.Len() != want.Len() {
		t.Fatalf("seed %d: digest %x of %d rows, want %x of %d", seed, got.Digest(), got.Len(), want.Digest(), want.Len())
	}
	if got.Unknown() != want.Unknown() || got.Refused() != want.Refused() {
		t.Fatalf("seed %d: unknown %d refused %d, want %d and %d", seed, got.Unknown(), got.Refused(), want.Unknown(), want.Refused())
	}
}

func checkChanged(t *testing.T, a, b *fwd.Table, c fwd.Changed) {
	t.Helper()
	touched := map[fwd.ID]bool{}
	for _, id := range c.Ports {
		touched[id] = true
	}
	for id, p := range b.Ports() {
		old, ok := a.Port(id)
		if touched[id] {
			continue
		}
		if !ok || old != p && !equalPort(old, p) {
			t.Fatalf("port %v changed unnoticed", p.PortName)
		}
	}
	for id, p := range a.Ports() {
		if _, ok := b.Port(id); !ok && !touched[id] {
			t.Fatalf("port %v went unnoticed", p.PortName)
		}
	}
}

func equalPort(a, b *fwd.Port) bool {
	if fwd.EncodePort(a.ServicePort) != fwd.EncodePort(b.ServicePort) {
		return false
	}
	for _, s := range fwd.Scopes() {
		x, y := a.List(s), b.List(s)
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if x[i] != y[i] {
				return false
			}
		}
	}
	return true
}

// TestPathIndependence holds that a table does not depend on the way to it: step by step, in one diff, or as a snapshot.
func TestPathIndependence(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	w := newWorld()
	stepwise, direct := &fwd.Table{}, &fwd.Table{}
	for i := range uint64(200) {
		w.mutate(rng, 20)
		want := mustTable(t, w)
		var err error
		if stepwise, _, err = stepwise.Apply(fwd.DiffTables(stepwise, want)); err != nil {
			t.Fatal(err)
		}
		if i%17 == 0 {
			if direct, _, err = direct.Apply(fwd.DiffTables(direct, want)); err != nil {
				t.Fatal(err)
			}
			sameTable(t, i, direct, want)
		}
		sameTable(t, i, stepwise, want)
	}
}

func TestApplyRefuses(t *testing.T) {
	w := newWorld()
	w.mutate(rand.New(rand.NewPCG(1, 2)), 50)
	base := mustTable(t, w)
	for name, tc := range map[string]struct {
		change fwd.PartChange
		want   error
	}{
		"digest":         {fwd.PartChange{Put: []fwd.Row{{Key: "\x63a"}}}, fwd.ErrDigest},
		"missing":        {fwd.PartChange{Remove: []string{"\x63zz"}}, fwd.ErrMalformed},
		"empty key":      {fwd.PartChange{Put: []fwd.Row{{}}}, fwd.ErrMalformed},
		"long key":       {fwd.PartChange{Put: []fwd.Row{{Key: strings.Repeat("x", 256)}}}, fwd.ErrMalformed},
		"short backend":  {fwd.PartChange{Replace: true, Put: []fwd.Row{{Key: "\x02abc"}}, Digest: fwd.Row{Key: "\x02abc"}.Sum()}, fwd.ErrMalformed},
		"port no proto":  {fwd.PartChange{Replace: true, Put: []fwd.Row{{Key: "\x01abc", Value: "\xff"}}, Digest: fwd.Row{Key: "\x01abc", Value: "\xff"}.Sum()}, fwd.ErrMalformed},
		"port wrong key": {wrongKey(), fwd.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			before := text(t, base)
			var c fwd.Change
			c.Parts[fwd.Common] = &tc.change
			if _, _, err := base.Apply(c); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if text(t, base) != before {
				t.Error("the table changed")
			}
		})
	}
}

func wrongKey() fwd.PartChange {
	r := fwd.EncodePort(fwd.ServicePort{PortName: fwd.PortName{Namespace: "a", Name: "b", Protocol: fwd.TCP}, Port: 1})
	r.Key = fwd.PortKey(1)
	return fwd.PartChange{Replace: true, Put: []fwd.Row{r}, Digest: r.Sum()}
}

func TestLists(t *testing.T) {
	addr := func(n byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 80) }
	p := fwd.NewPort(fwd.ServicePort{ClusterScope: fwd.Node}, map[fwd.Scope][]fwd.Backend{
		fwd.Common: {{Addr: addr(9)}},
		fwd.Zone:   {{Addr: addr(3)}, {Addr: addr(2), State: fwd.Draining}},
		fwd.Node:   {{Addr: addr(1), State: fwd.Kept}},
	})
	if got := p.Cluster(); len(got) != 2 || got[0].Addr != addr(2) {
		t.Errorf("no usable local backend: cluster list %v, want the zone's", got)
	}
	draining := fwd.NewPort(fwd.ServicePort{ClusterScope: fwd.Node}, map[fwd.Scope][]fwd.Backend{
		fwd.Zone: {{Addr: addr(3)}},
		fwd.Node: {{Addr: addr(1), State: fwd.Draining}},
	})
	if got := draining.Cluster(); len(got) != 1 || got[0].Addr != addr(3) {
		t.Errorf("only a draining local backend: cluster list %v, want the zone's", got)
	}
	if got := p.Local(); len(got) != 0 {
		t.Errorf("local list %v, want none in use", got)
	}
	if got := p.Serving(); len(got) != 4 {
		t.Errorf("serving %v, want all four", got)
	}
	if p.ReadyLocalAddresses() != 0 {
		t.Error("a kept backend counts as ready")
	}
}

// TestBackendIsFrontend holds that a backend that equals a virtual IP, port and protocol of the table is refused, whichever
// came first, and comes back when the other goes.
func TestBackendIsFrontend(t *testing.T) {
	vip := netip.MustParseAddr("10.96.0.9")
	victim := fwd.ServicePort{PortName: fwd.PortName{Namespace: "a", Name: "victim", Protocol: fwd.TCP}, ClusterIP: vip, Port: 80}
	other := fwd.ServicePort{PortName: fwd.PortName{Namespace: "a", Name: "other", Protocol: fwd.TCP}, ClusterIP: vip.Next(), Port: 80}
	rows := []fwd.Row{fwd.EncodePort(other)}
	for _, backend := range []string{"10.96.0.9:80", "10.96.0.9:81", "10.0.0.1:80"} {
		rows = append(rows, fwd.EncodeBackend(other.ID(), fwd.Backend{Addr: netip.MustParseAddrPort(backend)}))
	}
	without := (&fwd.Part{}).With(nil, rows)
	with := without.With(nil, []fwd.Row{fwd.EncodePort(victim)})
	table := &fwd.Table{}
	for i, step := range []struct {
		part          *fwd.Part
		used, refused int
	}{{without, 3, 0}, {with, 2, 1}, {without, 3, 0}, {&fwd.Part{}, 0, 0}, {with, 2, 1}} {
		c := fwd.DiffParts(table.Part(fwd.Common), step.part)
		next, changed, err := table.Apply(fwd.Change{Parts: [3]*fwd.PartChange{fwd.Common: &c}})
		if err != nil {
			t.Fatal(err)
		}
		table = next
		used := 0
		if p, ok := table.Port(other.ID()); ok {
			used = len(p.Cluster())
		}
		if used != step.used || table.Refused() != step.refused {
			t.Errorf("step %d: %d backends, %d refused; want %d and %d", i, used, table.Refused(), step.used, step.refused)
		}
		if !slices.Contains(changed.Ports, other.ID()) {
			t.Errorf("step %d: a Service port whose list changed is not said to have changed", i)
		}
	}
}

// TestBackendOfOtherFamily holds that a backend which is not of its Service port's family is refused, whichever came first.
func TestBackendOfOtherFamily(t *testing.T) {
	port := fwd.ServicePort{PortName: fwd.PortName{Namespace: "a", Name: "web", Protocol: fwd.TCP}, ClusterIP: netip.MustParseAddr("10.96.0.9"), Port: 80}
	var rows []fwd.Row
	for _, backend := range []string{"10.0.0.1:80", "[2001:db8::1]:80"} {
		rows = append(rows, fwd.EncodeBackend(port.ID(), fwd.Backend{Addr: netip.MustParseAddrPort(backend)}))
	}
	table := &fwd.Table{}
	for i, part := range []*fwd.Part{
		(&fwd.Part{}).With(nil, rows),
		(&fwd.Part{}).With(nil, append(rows, fwd.EncodePort(port))),
		(&fwd.Part{}).With(nil, rows),
	} {
		c := fwd.DiffParts(table.Part(fwd.Common), part)
		next, _, err := table.Apply(fwd.Change{Parts: [3]*fwd.PartChange{fwd.Common: &c}})
		if err != nil {
			t.Fatal(err)
		}
		table = next
		p, ok := table.Port(port.ID())
		if ok != (i == 1) || table.Refused() != i%2 {
			t.Errorf("step %d: Service port %t, %d refused", i, ok, table.Refused())
		}
		if ok && (len(p.Cluster()) != 1 || p.Cluster()[0].Addr != netip.MustParseAddrPort("10.0.0.1:80")) {
			t.Errorf("backends %v, want the one of IPv4", p.Cluster())
		}
	}
}

// TestGoldenDigest pins the specification: keys, sums and IDs may never change.
func TestGoldenDigest(t *testing.T) {
	sp := fwd.ServicePort{
		PortName:  fwd.PortName{Namespace: "default", Name: "web", Port: "http", Protocol: fwd.TCP},
		ClusterIP: netip.MustParseAddr("10.96.0.10"), Port: 80, Usable: true,
	}
	r := fwd.EncodePort(sp)
	b := fwd.EncodeBackend(sp.ID(), fwd.Backend{Addr: netip.MustParseAddrPort("10.244.1.5:8080")})
	got := []uint64{uint64(sp.ID()), r.Sum(), b.Sum()}
	want := []uint64{0x2240d858db9e72b1, 0x77e14e0468b85b80, 0x5ac911f3774683e3}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("value %d: %#x, want %#x", i, got[i], want[i])
		}
	}
}

// TestMessageSize holds DESIGN.md's target 2 for the message: at most 48 bytes for one endpoint, 24 or 36 in a batch.
func TestMessageSize(t *testing.T) {
	size := func(ip string, n int) int {
		c := fwd.PartChange{Digest: 1 << 63}
		for i := range n {
			c.Put = append(c.Put, fwd.EncodeBackend(1, fwd.Backend{Addr: netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(1000+i))}))
		}
		m := &fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Revision{Revision: &fairleadv1.Revision{
			Number: 1 << 20, CauseUnixMicros: 1_800_000_000_000_000, Common: c.Proto(),
		}}}
		return proto.Size(m) / n
	}
	for _, tc := range []struct {
		ip      string
		n, most int
	}{{"10.0.0.1", 1, 48}, {"10.0.0.1", 100, 24}, {"fd00::1", 100, 36}} {
		if got := size(tc.ip, tc.n); got > tc.most {
			t.Errorf("%s in a batch of %d: %d bytes each, want at most %d", tc.ip, tc.n, got, tc.most)
		}
	}
}
