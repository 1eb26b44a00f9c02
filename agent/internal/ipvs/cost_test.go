package ipvs

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/lab/uml"
	"github.com/fairlead/fairlead/proto/fwd"
)

// crowd is a table with many Services of two endpoints, the last of which has some more.
func crowd(services int, more ...string) string {
	var b strings.Builder
	b.WriteString(facts)
	for i := range services {
		fmt.Fprintf(&b, "service default/s%d:/TCP/IPv4 cluster-ip=10.%d.%d.%d port=80 usable\n  common 10.244.2.1:8080\n  common 10.244.2.2:8080\n",
			i, 97+i/62500, i/250%250, 1+i%250)
	}
	for _, e := range more {
		b.WriteString("  common " + e + "\n")
	}
	return b.String()
}

// localCrowd is a table with many Services under a Local policy, with one endpoint here and one elsewhere; the last has some more
// here.
func localCrowd(services int, more ...string) string {
	var b strings.Builder
	b.WriteString(facts)
	for i := range services {
		fmt.Fprintf(&b, "service default/s%d:/TCP/IPv4 cluster-ip=10.97.%d.%d load-balancer-ips=10.98.%d.%d port=80 node-port=%d external-local usable\n",
			i, i/250, 1+i%250, i/250, 1+i%250, 30000+i)
		b.WriteString("  common 10.244.2.1:8080\n  common 10.244.1.2:8080\n  node 10.244.1.2:8080\n")
	}
	for _, e := range more {
		b.WriteString("  common " + e + "\n  node " + e + "\n")
	}
	return b.String()
}

// transition is a table and how it came from the one before.
type transition struct {
	before, now *fwd.Table
	changed     fwd.Changed
}

// comings are a table of many Services, and two changes that go on for ever: one thing comes, and goes.
func comings(tb testing.TB, without, with string) (start *fwd.Table, comes, goes transition) {
	tb.Helper()
	first, second := parseTable(tb, without), parseTable(tb, with)
	more, added, err := first.Apply(fwd.DiffTables(first, second))
	if err != nil {
		tb.Fatal(err)
	}
	less, removed, err := more.Apply(fwd.DiffTables(more, first))
	if err != nil {
		tb.Fatal(err)
	}
	return less, transition{less, more, added}, transition{more, less, removed}
}

func (c transition) make(tb testing.TB, d dataplane.Interface) (writes int) {
	r, err := d.Sync(tb.Context(), c.before, c.now, dataplane.Delta{Changed: c.changed})
	if err != nil {
		tb.Fatal(err)
	}
	return r.Writes
}

// work is what a change costs: messages between the agent and the kernel with their bytes, and allocations of the agent.
type work struct{ messages, bytes, allocations int }

// testWork holds that a change costs as much work however many Services there are, and that no process is started for it:
// commands are not to be found meanwhile.
func testWork(t *testing.T) {
	const few, many = 50, 1000
	another := "service default/new:/TCP/IPv4 cluster-ip=10.96.9.9 port=80 node-port=30999 usable\n  common 10.244.2.1:8080\n"
	type tables func(services int, more ...string) string
	with := func(text tables, endpoint string) tables {
		return func(services int, _ ...string) string { return text(services, endpoint) }
	}
	for _, c := range []struct {
		name          string
		without, with tables
		writes        int
	}{
		{"endpoint", crowd, with(crowd, "10.244.2.3:8080"), 1},
		// A real server at the cluster IP, the load-balancer IP and the node port, and one for local clients.
		{"endpoint of a Local policy", localCrowd, with(localCrowd, "10.244.1.3:8080"), 4},
		// A set's member, a virtual server and a real server at each of two addresses; the route, and what guards it.
		{"Service", crowd, func(services int, _ ...string) string { return crowd(services) + another }, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.must(t, "ip link add monitor type nlmon")
			n.must(t, "ip link set monitor up")
			d := n.open(t, n.config())
			var costs [2][2]work
			for i, services := range []int{few, many} {
				start, comes, goes := comings(t, c.without(services), c.with(services))
				sync(t, d, start)
				costs[i] = n.costs(t, d, [2]transition{comes, goes}, c.writes)
				t.Logf("among %d Services, coming and going: %+v", services, costs[i])
			}
			for i := range costs[0] {
				a, b := costs[0][i], costs[1][i]
				if a.messages == 0 || a.messages != b.messages || a.bytes != b.bytes || b.allocations > a.allocations+a.allocations/5 {
					t.Errorf("a change costs %+v among %d Services, %+v among %d", a, few, b, many)
				}
			}
		})
	}
}

// costs is what two changes cost, the first of which takes some writes. Both are made before they are measured.
func (n *node) costs(t *testing.T, d dataplane.Interface, changes [2]transition, writes int) (costs [2]work) {
	t.Helper()
	path := os.Getenv("PATH")
	t.Setenv("PATH", "/nowhere")
	defer t.Setenv("PATH", path)
	if ds, err := dataplane.Compare(t.Context(), d); err == nil {
		t.Errorf("an audit, which needs commands, found %v and no error", ds)
	}
	for _, c := range changes {
		c.make(t, d)
	}
	for i, c := range changes {
		before := n.used(t)
		wrote := c.make(t, d)
		after := n.used(t)
		if i == 0 && wrote != writes {
			t.Errorf("%d writes, want %d", wrote, writes)
		}
		costs[i] = work{after.messages - before.messages, after.bytes - before.bytes, after.allocations - before.allocations}
	}
	return costs
}

// used is what was used since the beginning, as the device that monitors netlink counts it, and the Go runtime.
func (n *node) used(t *testing.T) (w work) {
	t.Helper()
	var text []byte
	if err := n.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/dev")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, counters, _ := strings.Cut(string(text), "monitor:")
	if _, err := fmt.Sscan(counters, &w.bytes, &w.messages); err != nil {
		t.Fatalf("read counters of netlink: %v in %s", err, text)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	w.allocations = int(memory.Mallocs) //nolint:gosec // far from the end
	return w
}

// BenchmarkStart programs many Services into a kernel that has none.
func BenchmarkStart(b *testing.B) {
	if !uml.Enter(b) {
		return
	}
	for _, services := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			table := parseTable(b, crowd(services))
			for b.Loop() {
				b.StopTimer()
				n := newNode(b)
				d := n.open(b, n.config())
				b.StartTimer()
				sync(b, d, table)
			}
		})
	}
}

// BenchmarkChange takes an endpoint in and out again.
func BenchmarkChange(b *testing.B) {
	if !uml.Enter(b) {
		return
	}
	for _, services := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			n := newNode(b)
			d := n.open(b, n.config())
			start, comes, goes := comings(b, crowd(services), crowd(services, "10.244.2.3:8080"))
			sync(b, d, start)
			for b.Loop() {
				comes.make(b, d)
				goes.make(b, d)
			}
		})
	}
}

// BenchmarkPlaces makes a virtual IP local and takes it away, beside others, in two ways: by a route, and by an address on a
// device.
func BenchmarkPlaces(b *testing.B) {
	if !uml.Enter(b) {
		return
	}
	for _, others := range []int{0, 5000} {
		n := newNode(b)
		var k *kernel
		if err := n.Do(func() (err error) {
			k, err = openLinks(Defaults().ProcSys)
			return err
		}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(k.close)
		link, err := k.links.LinkByName("d0")
		if err != nil {
			b.Fatal(err)
		}
		virtual := func(i int) *netlink.Addr {
			return &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 99, byte(i/250), byte(1+i%250)).To4(), Mask: net.CIDRMask(32, 32)}}
		}
		route := func(i int) *netlink.Route {
			a, _ := addrPort(virtual(i).IP, 0)
			return k.localRoute(a.Addr())
		}
		for _, place := range []struct {
			name        string
			add, remove func(i int) error
		}{
			{
				"route",
				func(i int) error { return k.links.RouteReplace(route(i)) },
				func(i int) error { return k.links.RouteDel(route(i)) },
			},
			{
				"address",
				func(i int) error { return k.links.AddrAdd(link, virtual(i)) },
				func(i int) error { return k.links.AddrDel(link, virtual(i)) },
			},
		} {
			b.Run(fmt.Sprintf("%s/%d", place.name, others), func(b *testing.B) {
				for i := range others {
					if err := place.add(i); err != nil {
						b.Fatal(err)
					}
				}
				for b.Loop() {
					if err := place.add(others); err != nil {
						b.Fatal(err)
					}
					if err := place.remove(others); err != nil {
						b.Fatal(err)
					}
				}
				for i := range others {
					if err := place.remove(i); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
