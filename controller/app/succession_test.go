package app

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/controller/internal/table"
	"github.com/fairlead/fairlead/proto/fwd"
)

// listOf are the rows of one Service with so many backends.
func listOf(backends int) []fwd.Update {
	p := fwd.ServicePort{
		PortName:  fwd.PortName{Namespace: "default", Name: "web", Protocol: fwd.TCP},
		ClusterIP: netip.MustParseAddr("10.96.0.1"), Port: 80, Usable: true,
	}
	u := fwd.Update{Put: []fwd.Row{fwd.EncodePort(p)}}
	for i := range backends {
		addr := netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}) //nolint:gosec // bytes of it
		u.Put = append(u.Put, fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: netip.AddrPortFrom(addr, 8080)}))
	}
	return []fwd.Update{u}
}

// TestMassRemovalAtSuccession: what the brake would hold of an earlier leader's tables stays until a fresh list lacks it too.
func TestMassRemovalAtSuccession(t *testing.T) {
	var fresh table.Image
	var failure error
	lists, asked := 0, 0
	s := &succession{
		cfg: Config{Brake: Brake{Share: 0.2, Floor: 5}, Logger: slog.New(slog.DiscardHandler)}, store: table.NewStore(1, table.Options{}),
		list:  func(context.Context) (table.Image, error) { lists++; return fresh, failure },
		again: func() { asked++ },
	}
	of := func(n int) table.Image { return table.Image{}.With(listOf(n)) }
	s.store.Publish(listOf(100), nil, s.next)
	if !s.settled(t.Context(), of(80)) || !s.settled(t.Context(), of(120)) || lists != 0 {
		t.Errorf("what the brake lets pass: %d lists", lists)
	}
	fresh = of(100)
	if s.settled(t.Context(), of(70)) || lists != 1 {
		t.Errorf("a list that has all of it: settled, %d lists", lists)
	}
	if s.settled(t.Context(), of(70)) || lists != 1 {
		t.Errorf("a moment later: settled, %d lists", lists)
	}
	s.next, failure = s.next.Add(-maxListPause), errors.New("away")
	if s.settled(t.Context(), of(70)) || lists != 2 {
		t.Errorf("without a list: settled, %d lists", lists)
	}
	s.next, failure, fresh = s.next.Add(-maxListPause), nil, of(71)
	if s.settled(t.Context(), of(70)) {
		t.Error("a list that has one of them")
	}
	s.next, fresh = s.next.Add(-maxListPause), of(60)
	if !s.settled(t.Context(), of(70)) {
		t.Error("a list that lacks it too")
	}
	s.cfg.Brake.Share = 1
	if !s.settled(t.Context(), table.Image{}) {
		t.Error("the brake is off")
	}
}
