package nftables

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

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

// BenchmarkLongestList lets one list grow longer than all others, and shrink again: the chains for its length come and go.
func BenchmarkLongestList(b *testing.B) {
	for _, services := range []int{1000, 10000, 100000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			table := scaled(b, services, 2)
			_, open := benchNode(b)
			d := open()
			mustSync(b, d, everything(table))
			row := fwd.EncodeBackend(scaledPort(services/2).ID(), fwd.Backend{Addr: netip.MustParseAddrPort("10.99.99.99:8080")})
			next, touched := changed(b, table, nil, []fwd.Row{row})
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

// BenchmarkStickyService adds and removes one Service with session affinity among others that have it.
func BenchmarkStickyService(b *testing.B) {
	sticky := func(n int) fwd.ServicePort {
		p := scaledPort(n)
		p.AffinitySeconds = 60
		return p
	}
	for _, services := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			var rows []fwd.Row
			for n := range services {
				rows = append(rows, fwd.EncodePort(sticky(n)))
			}
			table, _ := changed(b, scaled(b, services, 2), nil, rows)
			_, open := benchNode(b)
			d := open()
			mustSync(b, d, everything(table))
			p := sticky(20000)
			next, touched := changed(b, table, nil, []fwd.Row{fwd.EncodePort(p), fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: backendAddr(40000)})})
			for b.Loop() {
				mustSync(b, d, step{table, next, dataplane.Delta{Changed: touched}})
				table, next = next, table
			}
		})
	}
}

// BenchmarkAudit reads everything back.
func BenchmarkAudit(b *testing.B) {
	_, open := benchNode(b)
	d := open()
	mustSync(b, d, everything(scaled(b, 10000, 2)))
	for b.Loop() {
		d.generation.forget()
		if ds, err := dataplane.Compare(b.Context(), d); err != nil || len(ds) > 0 {
			b.Fatal(ds, err)
		}
	}
}

// BenchmarkManyFrontends changes one endpoint of a Service with a cluster IP, a load-balancer IP and a node port.
func BenchmarkManyFrontends(b *testing.B) {
	p := scaledPort(20000)
	p.LoadBalancerIPs, p.NodePort = []netip.Addr{netip.MustParseAddr("203.0.113.10")}, 30000
	row := func(n int) fwd.Row { return fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: backendAddr(n)}) }
	table, _ := changed(b, scaled(b, 10000, 2), nil, []fwd.Row{fwd.EncodePort(p), row(40000), row(40001)})
	_, open := benchNode(b)
	d := open()
	mustSync(b, d, everything(table))
	next, touched := changed(b, table, []string{row(40000).Key}, []fwd.Row{row(40002)})
	for b.Loop() {
		mustSync(b, d, step{table, next, dataplane.Delta{Changed: touched}})
		table, next = next, table
	}
}

// BenchmarkConnect opens TCP connections inside the node: directly, and by the cluster IP of the last of many Services.
func BenchmarkConnect(b *testing.B) {
	for _, services := range []int{0, 1, 10000, 100000} {
		name := map[bool]string{true: "direct", false: fmt.Sprintf("%d", services)}[services == 0]
		b.Run(name, func(b *testing.B) { benchConnect(b, services) })
	}
}

func benchConnect(b *testing.B, services int) {
	n, open := benchNode(b)
	server := backendAddr(max(services-1, 0) * 2)
	to := server
	d := open()
	if services > 0 {
		// All but the last have two endpoints; that has one, which answers.
		table := scaled(b, services, 2)
		p := scaledPort(services - 1)
		table, _ = changed(b, table, []string{fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: backendAddr(services*2 - 1)}).Key}, nil)
		mustSync(b, d, everything(table))
		to = netip.AddrPortFrom(p.ClusterIP, 80)
	} else {
		mustSync(b, d, everything(&fwd.Table{}))
	}
	err := n.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{server.Addr(), netip.MustParseAddr("10.0.0.1")} {
			addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}}
			if err := netlink.AddrReplace(lo, addr); err != nil {
				return err
			}
		}
		if err := netlink.RouteReplace(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}}); err != nil {
			return err
		}
		listener, err := net.Listen("tcp", server.String())
		if err != nil {
			return err
		}
		defer func() { _ = listener.Close() }()
		go func() {
			for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
				go func() {
					_, _ = io.Copy(io.Discard, conn) // until the client has gone
					_ = conn.Close()
				}()
			}
		}()
		return connectOften(b, to)
	})
	if err != nil {
		b.Fatal(err)
	}
}

// connectOften measures the system call alone.
func connectOften(b *testing.B, to netip.AddrPort) error {
	var took []time.Duration
	at := &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	for b.Loop() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			return err
		}
		began := time.Now()
		err = unix.Connect(fd, at)
		took = append(took, time.Since(began))
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	return nil
}
