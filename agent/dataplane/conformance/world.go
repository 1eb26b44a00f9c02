package conformance

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
)

// world is a random table under construction. Its Service ports are numbered; each number is a Service of its own, with
// the same addresses whenever it comes back.
type world struct {
	ports map[int]member
	node  fwd.NodeFacts
}

type member struct {
	port  fwd.ServicePort
	lists map[fwd.Scope][]fwd.Backend
}

// numbers is how many Service ports there may be: enough for trees to grow and shrink.
const numbers = 150

// newWorld begins with half of the Service ports, so that all kinds of them are there, in both families.
func newWorld(seed uint64) *world {
	w := &world{ports: map[int]member{}, node: fwd.NodeFacts{
		PodCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10:244:1::/64")},
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11")},
	}}
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := range numbers {
		if n%8 < 4 {
			w.ports[n] = randomMember(rng, n)
		}
	}
	return w
}

// mutate makes n random changes.
func (w *world) mutate(rng *rand.Rand, n int) {
	for range n {
		number := rng.IntN(numbers)
		m, there := w.ports[number]
		switch k := rng.IntN(20); {
		case k == 0:
			w.node.Deleting = !w.node.Deleting
		case k == 1:
			w.node.Addresses[0] = netip.AddrFrom4([4]byte{192, 0, 2, byte(11 + rng.IntN(2))})
		case !there:
			w.ports[number] = randomMember(rng, number)
		case k < 7:
			delete(w.ports, number)
		case k < 10:
			w.ports[number] = randomMember(rng, number)
		default:
			w.ports[number] = member{m.port, randomLists(rng, m.port)}
		}
	}
}

func randomMember(rng *rand.Rand, number int) member {
	f := fwd.Families()[number%2]
	ip := func(net byte) netip.Addr {
		if f == fwd.IPv6 {
			return netip.AddrFrom16([16]byte{0: 0xfd, 1: net, 14: byte(number >> 8), 15: byte(number)})
		}
		return netip.AddrFrom4([4]byte{10, net, byte(number >> 8), byte(number)})
	}
	some := func() bool { return rng.IntN(3) == 0 }
	p := fwd.ServicePort{
		PortName:  fwd.PortName{Namespace: "conformance", Name: fmt.Sprintf("service-%d", number), Port: "http", Protocol: fwd.Protocols()[number/2%3], Family: f},
		ClusterIP: ip(96), Port: 80, InternalLocal: some(), ExternalLocal: some(), Usable: !some(), ClusterScope: fwd.Scopes()[rng.IntN(3)],
	}
	if number%4 < 2 {
		// A Service with many ports: an address that has more rules than its neighbours.
		p.ClusterIP, p.Port, p.Name, p.PortName.Port = crowdIP(f), uint16(1000+number), "crowd", fmt.Sprintf("p%d", number)
	}
	if some() {
		p.NodePort = uint16(30000 + number)
	}
	if some() {
		p.ExternalIPs = []netip.Addr{ip(97)}
	}
	if some() {
		p.LoadBalancerIPs = []netip.Addr{ip(98)}
		p.HealthCheckNodePort = uint16(32000 + number/4)
	}
	if some() {
		p.SourceRanges = []netip.Prefix{netip.PrefixFrom(ip(99), f.Bits()-8).Masked()}
	}
	if some() {
		p.AffinitySeconds = uint32(100 + rng.IntN(3))
	}
	return member{p, randomLists(rng, p)}
}

// crowdIP is the address of the Service with many ports.
func crowdIP(f fwd.Family) netip.Addr {
	if f == fwd.IPv6 {
		return netip.MustParseAddr("fd60::ffff")
	}
	return netip.MustParseAddr("10.96.255.255")
}

func randomLists(rng *rand.Rand, p fwd.ServicePort) map[fwd.Scope][]fwd.Backend {
	lists := map[fwd.Scope][]fwd.Backend{}
	for _, s := range fwd.Scopes() {
		seen := map[byte]bool{}
		for range rng.IntN(5) {
			last := byte(1 + rng.IntN(9))
			if seen[last] {
				continue
			}
			seen[last] = true
			addr := netip.AddrFrom4([4]byte{10, 244, 1, last})
			if p.Family == fwd.IPv6 {
				addr = netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 15: last})
			}
			lists[s] = append(lists[s], fwd.Backend{Addr: netip.AddrPortFrom(addr, 8080), State: fwd.States()[rng.IntN(3)]})
		}
	}
	return lists
}

// table builds the table from nothing.
func (w *world) table(t *testing.T) *fwd.Table {
	t.Helper()
	rows := map[fwd.Scope][]fwd.Row{fwd.Node: {fwd.EncodeNode(w.node)}}
	for _, m := range w.ports {
		rows[fwd.Common] = append(rows[fwd.Common], fwd.EncodePort(m.port))
		for s, list := range m.lists {
			for _, b := range list {
				rows[s] = append(rows[s], fwd.EncodeBackend(m.port.ID(), b))
			}
		}
	}
	parts := map[fwd.Scope]*fwd.Part{}
	for s, r := range rows {
		parts[s] = (&fwd.Part{}).With(nil, r)
	}
	table, err := fwd.NewTable(parts)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// next builds the table from the one before, and what differs.
func (w *world) next(t *testing.T, before *fwd.Table) (*fwd.Table, fwd.Changed) {
	t.Helper()
	now, changed, err := before.Apply(fwd.DiffTables(before, w.table(t)))
	if err != nil {
		t.Fatal(err)
	}
	return now, changed
}
