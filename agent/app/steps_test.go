package app

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/conntrack"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestNewAddress: flows to a node port at an address that came are cleaned once, as soon as the Step hears of it, and again
// when the address went and came back; a failure is made up for.
func TestNewAddress(t *testing.T) {
	table, err := fwd.ParseText(strings.NewReader("service a/dns:/UDP/IPv4 cluster-ip=10.96.0.10 port=53 node-port=30053 usable\n  common 10.244.1.5:53\n"))
	if err != nil {
		t.Fatal(err)
	}
	var local []netip.Addr
	var cleaned []string
	var broken error
	f := &flows{
		addresses: func() ([]netip.Addr, error) { return local, nil },
		deleted:   prometheus.NewCounter(prometheus.CounterOpts{Name: "deleted"}),
		clean: func(_ context.Context, filters []conntrack.Filter) (int, error) {
			cleaned = nil
			for _, filter := range filters {
				cleaned = append(cleaned, filter.To.String())
			}
			return len(filters), broken
		},
	}
	old, came := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	everything := dataplane.Delta{All: true}
	before := &fwd.Table{}
	for n, step := range []struct {
		delta  dataplane.Delta
		local  []netip.Addr
		broken error
		want   []string
	}{
		{everything, []netip.Addr{old}, nil, []string{"10.96.0.10:53", "192.0.2.1:30053"}},
		{dataplane.Delta{}, []netip.Addr{old}, nil, nil},
		{dataplane.Delta{}, []netip.Addr{old, came}, errors.New("injected"), []string{"10.96.0.10:53", "192.0.2.1:30053", "192.0.2.2:30053"}},
		{dataplane.Delta{}, []netip.Addr{old, came}, nil, []string{"10.96.0.10:53", "192.0.2.1:30053", "192.0.2.2:30053"}},
		{dataplane.Delta{}, []netip.Addr{old, came}, nil, nil},
		{dataplane.Delta{}, []netip.Addr{came}, nil, nil},
		{dataplane.Delta{}, []netip.Addr{old, came}, nil, []string{"10.96.0.10:53", "192.0.2.1:30053", "192.0.2.2:30053"}},
		{dataplane.Delta{}, nil, nil, nil},
		{dataplane.Delta{}, []netip.Addr{old}, nil, []string{"10.96.0.10:53", "192.0.2.1:30053"}},
	} {
		local, broken = step.local, step.broken
		if _, err := f.Follow(t.Context(), before, table, step.delta); !errors.Is(err, step.broken) {
			t.Errorf("step %d: error %v", n, err)
		}
		if !slices.Equal(cleaned, step.want) {
			t.Errorf("step %d: cleaned %v, want %v", n, cleaned, step.want)
		}
		before = table
	}
}

// TestFirstFlows: attempts at TCP connections are cleaned until that succeeded once, and never again.
func TestFirstFlows(t *testing.T) {
	table, err := fwd.ParseText(strings.NewReader("service a/web:/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable\n  common 10.244.1.5:80\n"))
	if err != nil {
		t.Fatal(err)
	}
	var attempts int
	var broken error
	f := &flows{
		addresses: func() ([]netip.Addr, error) { return nil, nil },
		deleted:   prometheus.NewCounter(prometheus.CounterOpts{Name: "deleted"}),
		clean: func(_ context.Context, filters []conntrack.Filter) (int, error) {
			attempts = len(filters)
			return 0, broken
		},
	}
	for n, step := range []struct {
		broken error
		want   int
	}{{errors.New("injected"), 1}, {nil, 1}, {nil, 0}, {nil, 0}} {
		broken = step.broken
		if _, err := f.Follow(t.Context(), &fwd.Table{}, table, dataplane.Delta{All: true}); !errors.Is(err, step.broken) {
			t.Errorf("step %d: error %v", n, err)
		}
		if attempts != step.want {
			t.Errorf("step %d: %d filters, want %d", n, attempts, step.want)
		}
	}
}

// TestThrift: memory is given back after everything was looked at, and once when it is calm after changes.
func TestThrift(t *testing.T) {
	step := newThrift()
	all, some, none := dataplane.Delta{All: true}, dataplane.Delta{Changed: fwd.Changed{Ports: []fwd.ID{1}}}, dataplane.Delta{}
	for n, s := range []struct {
		delta dataplane.Delta
		gives bool
	}{{all, true}, {none, false}, {some, false}, {some, false}, {none, true}, {none, false}, {some, false}, {all, true}, {none, false}} {
		if _, err := step.Follow(t.Context(), &fwd.Table{}, &fwd.Table{}, s.delta); err != nil {
			t.Fatal(err)
		}
		gives := false
		select {
		case <-step.now:
			gives = true
		default:
		}
		if gives != s.gives {
			t.Errorf("step %d: memory is given back: %t", n, gives)
		}
	}
}
