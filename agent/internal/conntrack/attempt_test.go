package conntrack

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestAttemptBeforeRules: a client whose first SYN went to a virtual IP before there was a rule for it stays cut off by its
// own conntrack entry, whatever rules come, until Clean of the first plan; then its next SYN is translated. A connection
// that stands is left alone.
func TestAttemptBeforeRules(t *testing.T) {
	for _, c := range []struct{ family, iptables, vip, other, endpoint string }{
		{"IPv4", "iptables", "10.96.0.10:53", "10.96.0.11:53", "10.0.0.2:5353"},
		{"IPv6", "ip6tables", "[fd00::10]:53", "[fd00::11]:53", "[fd01::2]:5353"},
	} {
		t.Run(c.family, func(t *testing.T) {
			newNamespace(t)
			vip, other, endpoint := netip.MustParseAddrPort(c.vip), netip.MustParseAddrPort(c.other), netip.MustParseAddrPort(c.endpoint)
			addToLoopback(t, endpoint.Addr())
			serveTCP(t, endpoint)
			nowhere := addNowhere(t)
			for _, v := range []netip.AddrPort{vip, other} {
				if err := netlink.RouteAdd(&netlink.Route{LinkIndex: nowhere, Dst: single(v.Addr())}); err != nil {
					t.Fatal(err)
				}
			}
			dnat(t, []string{c.iptables, "-A"}, other, endpoint) // the kernel tracks and translates, as on any node
			standing := dial(t, "tcp", other)
			expectAnswer(t, standing, endpoint)

			early := dialLater(t, vip)
			awaitAttempt(t, vip)
			dnat(t, []string{c.iptables, "-A"}, vip, endpoint)
			wait := time.NewTimer(2500 * time.Millisecond) // it repeats its SYN after one second, and two more
			select {
			case a := <-early:
				t.Fatalf("it is connected before anything was cleaned (%v): the test shows nothing", a.err)
			case <-wait.C:
			}
			now := table(t, "service a/b:/TCP/"+c.family+" port=53 usable cluster-ip="+vip.Addr().String()+"\ncommon "+c.endpoint+
				"\nservice a/c:/TCP/"+c.family+" port=53 usable cluster-ip="+other.Addr().String()+"\ncommon "+c.endpoint)
			filters := Plan(Input{Before: &fwd.Table{}, Now: now, Delta: dataplane.Delta{All: true}, First: true})
			if n, err := (Cleaner{}).Clean(t.Context(), filters); err != nil || n != 1 {
				t.Fatalf("Clean: %d flows, %v; want 1", n, err)
			}
			a := <-early
			if a.err != nil {
				t.Fatalf("still cut off: %v", a.err)
			}
			t.Cleanup(func() { _ = a.conn.Close() })
			expectAnswer(t, a.conn, endpoint)
			expectAnswer(t, standing, endpoint)
			if n, err := (Cleaner{}).Clean(t.Context(), filters); err != nil || n != 0 {
				t.Errorf("second Clean: %d flows, %v; want none", n, err)
			}
		})
	}
}

// TestCleanAttempts: of all TCP flows only those in SYN_SENT go that lead to exactly a cluster IP and port, untranslated.
func TestCleanAttempts(t *testing.T) {
	newNamespace(t)
	const established, synReceived = 3, 2
	vip, pod := "10.96.0.10", "10.0.0.2"
	tcp := func(to string, port, from uint16, repliesFrom string, state uint8) tracked {
		return tracked{to: to, port: port, from: from, repliesFrom: repliesFrom, repliesPort: port, protocol: unix.IPPROTO_TCP, state: state}
	}
	survivors := []tracked{
		tcp(vip, 53, 1, pod, tcpSynSent),                                // translated, its endpoint is slow
		tcp(vip, 53, 2, vip, established),                               // never translated, and yet it stands
		tcp(vip, 53, 3, vip, synReceived),                               // about to stand
		tcp(vip, 54, 4, vip, tcpSynSent),                                // another port
		tcp("10.96.0.11", 53, 5, "10.96.0.11", tcpSynSent),              // another address
		{to: vip, port: 53, from: 6, repliesFrom: vip, repliesPort: 53}, // UDP, which other Filters are for
	}
	for _, s := range survivors {
		createFlow(t, s)
	}
	createFlow(t, tcp(vip, 53, 7, vip, tcpSynSent))
	filters := []Filter{{To: netip.MustParseAddrPort("10.96.0.10:53"), Attempts: true}}
	if n, err := (Cleaner{}).Clean(t.Context(), filters); err != nil || n != 1 {
		t.Fatalf("Clean: %d flows, %v; want 1", n, err)
	}
	left, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != len(survivors) {
		t.Errorf("%d flows are left, want %d: %v", len(left), len(survivors), left)
	}
}

// attempt is how a dial ended.
type attempt struct {
	conn net.Conn
	err  error
}

// addNowhere returns a device whose packets nobody takes. Linux rejects what IPv6 routes send to the loopback device.
func addNowhere(t *testing.T) int {
	t.Helper()
	end := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "nowhere"}, PeerName: "nobody"}
	if err := netlink.LinkAdd(end); err != nil {
		t.Fatal(err)
	}
	peer, err := netlink.LinkByName("nobody")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []netlink.Link{end, peer} {
		if err := errors.Join(netlink.LinkSetARPOff(l), netlink.LinkSetUp(l)); err != nil {
			t.Fatal(err)
		}
	}
	return end.Attrs().Index
}

// dialLater connects beside the test, in the network namespace of its thread, for ten seconds at most.
func dialLater(t *testing.T, to netip.AddrPort) <-chan attempt {
	t.Helper()
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan attempt, 1)
	go func() {
		defer here.Close()
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := netns.Set(here); err != nil {
			ended <- attempt{err: err}
			return
		}
		conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", to.String())
		ended <- attempt{conn: conn, err: err}
	}()
	return ended
}

// awaitAttempt waits until the kernel tracks a SYN to a virtual IP.
func awaitAttempt(t *testing.T, to netip.AddrPort) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(5 * time.Second)
	for {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.InetFamily(addressFamily(fwd.FamilyOf(to.Addr()))))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range flows {
			if dst, _ := netip.AddrFromSlice(f.Forward.DstIP); dst.Unmap() == to.Addr() && f.Forward.DstPort == to.Port() {
				return
			}
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("the kernel does not track the attempt to %v: %v", to, flows)
		}
	}
}
