package ipvs

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/agent/dataplane"
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

// testCost holds that a change of one endpoint writes what it is about, takes as long however many Services there are, and
// that no process is started for it: commands are not to be found meanwhile.
func testCost(t *testing.T) {
	took := map[int]time.Duration{}
	for _, services := range []int{1000, 10_000} {
		t.Run(fmt.Sprint(services), func(t *testing.T) { took[services] = changeOfOne(t, services) })
	}
	ratio := float64(took[10_000]) / float64(took[1000])
	t.Logf("one endpoint change: %v among 1,000 Services, %v among 10,000: ratio %.2f", took[1000], took[10_000], ratio)
	if ratio > 3 {
		t.Errorf("a change takes %.2f times as long among ten times as many Services", ratio)
	}
}

// changeOfOne returns how long it takes to add an endpoint or to remove it: the median of many times.
func changeOfOne(t *testing.T, services int) time.Duration {
	n := newNode(t)
	d := n.open(t, n.config())
	without, with := parseTable(t, crowd(services)), parseTable(t, crowd(services, "10.244.2.3:8080"))
	more, added, err := without.Apply(fwd.DiffTables(without, with))
	if err != nil {
		t.Fatal(err)
	}
	less, removed, err := more.Apply(fwd.DiffTables(more, without))
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	sync(t, d, less)
	t.Logf("%d Services from nothing: %v", services, time.Since(started).Round(time.Millisecond))
	t.Setenv("PATH", "/nowhere")
	change := func(before, now *fwd.Table, changed fwd.Changed) {
		t.Helper()
		r, err := d.Sync(t.Context(), before, now, dataplane.Delta{Changed: changed})
		if err != nil || r.Writes != 1 { // the removal is one too: the endpoint has no connections
			t.Fatalf("%d writes, want 1 (error %v)", r.Writes, err)
		}
	}
	var took []time.Duration
	for range 200 {
		began := time.Now()
		change(less, more, added)
		change(more, less, removed)
		took = append(took, time.Since(began)/2)
	}
	if ds, err := d.Audit(t.Context()); err == nil {
		t.Errorf("an audit without commands found %v and no error", ds)
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// testPlaces measures the two ways to make virtual IPs local: a route each, and an address on a device each.
func testPlaces(t *testing.T) {
	const count = 5000
	n := newNode(t)
	var k *kernel
	if err := n.Do(func() (err error) {
		k, err = openLinks()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	link, err := k.links.LinkByName("d0")
	if err != nil {
		t.Fatal(err)
	}
	measure := func(what string, add func(net.IP) error) (first, last time.Duration) {
		for i := range count {
			began := time.Now()
			if err := add(net.IPv4(10, 99, byte(i/250), byte(1+i%250)).To4()); err != nil {
				t.Fatal(err)
			}
			switch {
			case i < count/10:
				first += time.Since(began)
			case i >= count-count/10:
				last += time.Since(began)
			}
		}
		first, last = first/(count/10), last/(count/10)
		t.Logf("%s: %v each at first, %v each at %d", what, first, last, count)
		return first, last
	}
	first, last := measure("local routes", func(ip net.IP) error {
		a, _ := addrPort(ip, 0)
		return k.links.RouteReplace(k.localRoute(a.Addr()))
	})
	if last > 3*first {
		t.Errorf("a route takes %v at first and %v later", first, last)
	}
	measure("addresses on a device", func(ip net.IP) error {
		return k.links.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(32, 32)}})
	})
}
