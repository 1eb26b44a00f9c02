package world

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
)

func TestAddressesAreDistinctAndInTheirRanges(t *testing.T) {
	for _, w := range []World{{MaxServices, 1}, {30_000, 4}, {1_000, MaxEndpoints}} {
		if err := w.Validate(); err != nil {
			t.Fatal(err)
		}
		seen := map[netip.AddrPort]bool{}
		check := func(a netip.AddrPort, in netip.Prefix) {
			if seen[a] || !in.Contains(a.Addr()) {
				t.Fatalf("%v: %v twice, or not in %v", w, a, in)
			}
			seen[a] = true
		}
		for i := range w.Services {
			check(w.VirtualIP(i), ServiceCIDR())
			check(w.Extra(i), EndpointCIDR())
			for _, a := range w.EndpointsOf(i) {
				check(a, EndpointCIDR())
			}
		}
		if seen[netip.AddrPortFrom(ServiceCIDR().Addr(), ServicePort)] {
			t.Errorf("%v: the range's own address is a cluster IP", w)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, w := range []World{{0, 1}, {MaxServices + 1, 1}, {1, 0}, {1, MaxEndpoints + 1}} {
		if w.Validate() == nil {
			t.Errorf("%v is valid", w)
		}
	}
}

// TestBothLanguagesSayTheSame compares the objects with the table.
func TestBothLanguagesSayTheSame(t *testing.T) {
	w := World{20, 3}
	common, node := w.Rows()
	empty := &fwd.Part{}
	for _, extra := range []bool{false, true} {
		if extra {
			common = append(common, w.ExtraRow(7))
		}
		table, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{fwd.Common: empty.With(nil, common), fwd.Node: empty.With(nil, node)})
		if err != nil {
			t.Fatal(err)
		}
		if table.Refused()+table.Unknown() > 0 {
			t.Errorf("%d rows are refused, %d unknown", table.Refused(), table.Unknown())
		}
		for i := range w.Services {
			svc, slice := w.Service(i), w.Slice(i, extra && i == 7)
			p, ok := table.Port(portOf(i).ID())
			if !ok || p.ClusterIP.String() != svc.Spec.ClusterIP || int32(p.Port) != svc.Spec.Ports[0].Port || p.Name != svc.Name {
				t.Fatalf("service %d: %+v, want %+v", i, p, svc.Spec)
			}
			var ours, theirs []string
			for _, b := range p.Cluster() {
				ours = append(ours, b.Addr.Addr().String())
			}
			for _, e := range slice.Endpoints {
				theirs = append(theirs, e.Addresses...)
			}
			slices.Sort(ours)
			slices.Sort(theirs)
			if !slices.Equal(ours, theirs) || len(ours) < 3 {
				t.Errorf("service %d: %v, want %v", i, ours, theirs)
			}
		}
	}
}

func TestSample(t *testing.T) {
	for _, w := range []World{{10, 1}, {256, 1}, {10_000, 2}} {
		sample := w.Sample(256)
		if len(sample) != min(256, w.Services) || sample[0] != w.Services-1 {
			t.Errorf("%v: %d Services, the first is %d", w, len(sample), sample[0])
		}
		slices.Sort(sample)
		if len(slices.Compact(sample)) != len(sample) || sample[0] < 0 {
			t.Errorf("%v: %v", w, sample)
		}
	}
	if got := (World{1_234_567, 2}).String(); got != "1,234,567 × 2" {
		t.Error(got)
	}
}
