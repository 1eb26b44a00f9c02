package nftables

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/proto/fwd"
)

// backendAddr is the n-th of all endpoints.
func backendAddr(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(200 + n>>16), byte(n >> 8), byte(n)}), 8080)
}

// scaledPort is the n-th of many Services.
func scaledPort(n int) fwd.ServicePort {
	return fwd.ServicePort{
		PortName:  fwd.PortName{Namespace: "scale", Name: fmt.Sprintf("service-%d", n), Protocol: fwd.TCP},
		ClusterIP: netip.AddrFrom4([4]byte{10, byte(96 + n>>16), byte(n >> 8), byte(n)}), Port: 80, Usable: true,
	}
}

// scaled is a table of many Services, each with so many endpoints of its own.
func scaled(tb testing.TB, services, endpoints int) *fwd.Table {
	tb.Helper()
	var rows []fwd.Row
	for n := range services {
		p := scaledPort(n)
		rows = append(rows, fwd.EncodePort(p))
		for e := range endpoints {
			rows = append(rows, fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: backendAddr(n*endpoints + e)}))
		}
	}
	table, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{fwd.Common: (&fwd.Part{}).With(nil, rows)})
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// changed is the table with rows of the common part removed and put, and what that touched.
func changed(tb testing.TB, table *fwd.Table, remove []string, put []fwd.Row) (*fwd.Table, fwd.Changed) {
	tb.Helper()
	before := table.Part(fwd.Common)
	after := before.With(remove, put)
	parts := map[fwd.Scope]*fwd.Part{fwd.Zone: table.Part(fwd.Zone), fwd.Node: table.Part(fwd.Node), fwd.Common: after}
	var c fwd.Change
	for s, p := range parts {
		if d := fwd.DiffParts(table.Part(s), p); !d.Empty() {
			c.Parts[s] = &d
		}
	}
	next, touched, err := table.Apply(c)
	if err != nil {
		tb.Fatal(err)
	}
	return next, touched
}

func benchNode(b *testing.B) (*lab.Namespace, func() *Backend) {
	b.Helper()
	n, err := lab.NewNamespace()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(n.Close)
	return n, func() (d *Backend) {
		err := n.Do(func() (err error) {
			d, err = New(b.Context(), Defaults())
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		return d
	}
}

func mustSync(tb testing.TB, d dataplane.Interface, s step) {
	tb.Helper()
	if _, err := d.Sync(tb.Context(), s.before, s.now, s.delta); err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkColdStart programs a kernel that has nothing of ours.
func BenchmarkColdStart(b *testing.B) {
	for _, size := range [][2]int{{1000, 2}, {10000, 2}, {30000, 2}, {5000, 50}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			table := scaled(b, size[0], size[1])
			_, open := benchNode(b)
			for b.Loop() {
				b.StopTimer()
				d := open()
				if err := d.Cleanup(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				mustSync(b, d, everything(table))
			}
		})
	}
}

// BenchmarkEndpointChange replaces one endpoint of one Service: the address of a Pod that was made anew.
func BenchmarkEndpointChange(b *testing.B) {
	for _, size := range [][2]int{{1000, 2}, {10000, 2}, {100000, 2}, {5000, 50}} {
		b.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(b *testing.B) {
			table := scaled(b, size[0], size[1])
			_, open := benchNode(b)
			d := open()
			mustSync(b, d, everything(table))
			id := scaledPort(size[0] / 2).ID()
			old := fwd.EncodeBackend(id, fwd.Backend{Addr: backendAddr(size[0] / 2 * size[1])})
			other := fwd.EncodeBackend(id, fwd.Backend{Addr: netip.MustParseAddrPort("10.99.99.99:8080")})
			next, touched := changed(b, table, []string{old.Key}, []fwd.Row{other})
			for b.Loop() {
				mustSync(b, d, step{table, next, dataplane.Delta{Changed: touched}})
				table, next = next, table
			}
		})
	}
}

// BenchmarkService adds and removes one Service: two operations.
func BenchmarkService(b *testing.B) {
	table := scaled(b, 10000, 2)
	_, open := benchNode(b)
	d := open()
	mustSync(b, d, everything(table))
	p := scaledPort(10001)
	next, touched := changed(b, table, nil, []fwd.Row{
		fwd.EncodePort(p), fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: backendAddr(30000)}), fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: backendAddr(30001)}),
	})
	for b.Loop() {
		mustSync(b, d, step{table, next, dataplane.Delta{Changed: touched}})
		table, next = next, table
	}
}

// BenchmarkAudit reads everything back.
func BenchmarkAudit(b *testing.B) {
	_, open := benchNode(b)
	d := open()
	mustSync(b, d, everything(scaled(b, 10000, 2)))
	for b.Loop() {
		if ds, err := d.Audit(b.Context()); err != nil || len(ds) > 0 {
			b.Fatal(ds, err)
		}
	}
}
