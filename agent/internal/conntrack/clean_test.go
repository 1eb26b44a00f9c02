package conntrack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestCleanTraffic sends datagrams through a virtual IP of a real kernel: after the translation changed, a flow sticks to
// its old endpoint until Clean, other flows stay as they are, and TCP connections survive.
func TestCleanTraffic(t *testing.T) {
	for _, c := range []struct{ family, iptables, vip, other, old, next string }{
		{"IPv4", "iptables", "10.96.0.10:53", "10.96.0.11:53", "10.0.0.2:5353", "10.0.0.3:5353"},
		{"IPv6", "ip6tables", "[fd00::10]:53", "[fd00::11]:53", "[fd01::2]:5353", "[fd01::3]:5353"},
	} {
		t.Run(c.family, func(t *testing.T) {
			newNamespace(t)
			vip, other := netip.MustParseAddrPort(c.vip), netip.MustParseAddrPort(c.other)
			old, next := netip.MustParseAddrPort(c.old), netip.MustParseAddrPort(c.next)
			for _, a := range []netip.AddrPort{old, next} {
				addToLoopback(t, a.Addr())
				serveUDP(t, a)
				serveTCP(t, a)
			}
			for _, v := range []netip.AddrPort{vip, other} {
				routeToLoopback(t, v.Addr())
				dnat(t, []string{c.iptables, "-A"}, v, old)
			}
			stale, kept := dial(t, "udp", vip), dial(t, "udp", other)
			connection := dial(t, "tcp", vip)
			for _, conn := range []net.Conn{stale, kept, connection} {
				expectAnswer(t, conn, old)
			}

			dnat(t, []string{c.iptables, "-D"}, vip, old)
			dnat(t, []string{c.iptables, "-A"}, vip, next)
			expectAnswer(t, stale, old) // the kernel holds on to the flow: what Clean is for

			line := "service a/b:/UDP/" + c.family + " port=53 usable cluster-ip="
			before := table(t, line+vip.Addr().String()+"\ncommon "+c.old)
			now := table(t, line+vip.Addr().String()+"\ncommon "+c.next)
			_, changed, err := before.Apply(fwd.DiffTables(before, now))
			if err != nil {
				t.Fatal(err)
			}
			filters := Plan(Input{Before: before, Now: now, Delta: dataplane.Delta{Changed: changed}})
			if n, err := (Cleaner{}).Clean(t.Context(), filters); err != nil || n != 1 {
				t.Fatalf("Clean: %d flows, %v; want 1", n, err)
			}
			expectAnswer(t, stale, next)
			expectAnswer(t, kept, old)
			expectAnswer(t, connection, old)
			if n, err := (Cleaner{}).Clean(t.Context(), filters); err != nil || n != 0 {
				t.Errorf("second Clean: %d flows, %v; want none", n, err)
			}
		})
	}
}

// TestCleanMany selects among many flows: the exact destination only, whatever never was translated included.
func TestCleanMany(t *testing.T) {
	newNamespace(t)
	vip, old, next := "10.96.0.10", "10.0.0.2", "10.0.0.3"
	const many = 2000
	for port := range uint16(many) {
		createFlow(t, tracked{to: vip, port: 53, from: 10000 + port, repliesFrom: old, repliesPort: 5353})
	}
	survivors := []tracked{
		{to: vip, port: 53, from: 1, repliesFrom: next, repliesPort: 5353},                            // to an endpoint that serves
		{to: vip, port: 54, from: 2, repliesFrom: old, repliesPort: 5353},                             // another port
		{to: "10.96.0.11", port: 53, from: 3, repliesFrom: old, repliesPort: 5353},                    // another address
		{to: vip, port: 53, from: 4, repliesFrom: old, repliesPort: 5353, protocol: unix.IPPROTO_TCP}, // TCP
		{to: "192.0.2.1", port: 30053, from: 5, repliesFrom: old, repliesPort: 5353},                  // a NodePort elsewhere
		{to: old, port: 5353, from: 6, repliesFrom: old, repliesPort: 5353},                           // straight to the Pod
	}
	for _, s := range survivors {
		createFlow(t, s)
	}
	createFlow(t, tracked{to: vip, port: 53, from: 7, repliesFrom: vip, repliesPort: 53}) // never translated
	createFlow(t, tracked{to: "192.0.2.2", port: 30053, from: 8, repliesFrom: old, repliesPort: 5353})

	filters := []Filter{
		{To: netip.MustParseAddrPort("10.96.0.10:53"), Keep: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.3:5353")}},
		{To: netip.MustParseAddrPort("192.0.2.2:30053")},
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := (Cleaner{}).Clean(canceled, filters); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %d flows, %v", n, err)
	}
	start := time.Now()
	n, err := Cleaner{}.Clean(t.Context(), filters)
	if err != nil || n != many+2 {
		t.Fatalf("Clean: %d flows, %v; want %d", n, err, many+2)
	}
	t.Logf("%d flows in %v", n, time.Since(start))
	left, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != len(survivors) {
		t.Errorf("%d flows are left, want %d: %v", len(left), len(survivors), left)
	}
}

// FuzzParseFlow: whatever the bytes, no panic, and no flow that could be deleted without a tuple.
func FuzzParseFlow(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 8, 0, 1, 0x80, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, msg []byte) {
		if got, err := parseFlow(msg); err == nil && got.protocol != 0 && len(got.tuple) == 0 {
			t.Errorf("flow without a tuple: %+v", got)
		}
	})
}

// newNamespace moves the test to a network namespace of its own, with its loopback device up. The thread is never given
// back, so it ends with the test.
func newNamespace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("new network namespace (root is needed): %v", err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	if err := netlink.LinkSetUp(loopback(t)); err != nil {
		t.Fatal(err)
	}
}

func loopback(t *testing.T) netlink.Link {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	return lo
}

func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

func addToLoopback(t *testing.T, a netip.Addr) {
	t.Helper()
	if err := netlink.AddrAdd(loopback(t), &netlink.Addr{IPNet: single(a), Flags: unix.IFA_F_NODAD}); err != nil {
		t.Fatal(err)
	}
}

func routeToLoopback(t *testing.T, a netip.Addr) {
	t.Helper()
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: loopback(t).Attrs().Index, Dst: single(a)}); err != nil {
		t.Fatal(err)
	}
}

// dnat runs the command (iptables or ip6tables, -A or -D) for the rules that send from's traffic to to.
func dnat(t *testing.T, command []string, from, to netip.AddrPort) {
	t.Helper()
	for _, proto := range []string{"udp", "tcp"} {
		args := []string{
			command[1], "OUTPUT", "-w", "-t", "nat", "-d", from.Addr().String(), "-p", proto, "--dport", "53",
			"-j", "DNAT", "--to-destination", to.String(),
		}
		if out, err := exec.CommandContext(t.Context(), command[0], args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", command[0], strings.Join(args, " "), err, out)
		}
	}
}

// serveUDP and serveTCP answer whatever comes with their own address.
func serveUDP(t *testing.T, at netip.AddrPort) {
	t.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		for b := make([]byte, 64); ; {
			_, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort([]byte(at.String()), from)
		}
	}()
}

// serveTCP answers every connection with its own address.
func serveTCP(t *testing.T, at netip.AddrPort) {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for b := make([]byte, 64); ; {
					if _, err := conn.Read(b); err != nil {
						return
					}
					_, _ = conn.Write([]byte(at.String()))
				}
			}()
		}
	}()
}

func dial(t *testing.T, network string, to netip.AddrPort) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), network, to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func expectAnswer(t *testing.T, conn net.Conn, from netip.AddrPort) {
	t.Helper()
	b := make([]byte, 64)
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(b)
	if err != nil {
		t.Fatalf("no answer through %v: %v", conn.RemoteAddr(), err)
	}
	if got := string(b[:n]); got != from.String() {
		t.Errorf("answer through %v came from %s, want %v", conn.RemoteAddr(), got, from)
	}
}

// tracked describes a flow to create; protocol 0 is UDP, and state, which TCP has, is at least SYN_SENT.
type tracked struct {
	to          string
	port, from  uint16
	repliesFrom string
	repliesPort uint16
	protocol    uint8
	state       uint8
}

func createFlow(t *testing.T, f tracked) {
	t.Helper()
	if f.protocol == 0 {
		f.protocol = unix.IPPROTO_UDP
	}
	client := net.ParseIP("10.0.0.9").To4()
	flow := &netlink.ConntrackFlow{
		FamilyType: unix.AF_INET, TimeOut: 100,
		Forward: netlink.IPTuple{Protocol: f.protocol, SrcIP: client, SrcPort: f.from, DstIP: net.ParseIP(f.to).To4(), DstPort: f.port},
		Reverse: netlink.IPTuple{Protocol: f.protocol, SrcIP: net.ParseIP(f.repliesFrom).To4(), SrcPort: f.repliesPort, DstIP: client, DstPort: f.from},
	}
	if f.protocol == unix.IPPROTO_TCP {
		flow.ProtoInfo = &netlink.ProtoInfoTCP{State: max(f.state, tcpSynSent)}
	}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, unix.AF_INET, flow); err != nil {
		t.Fatalf("create flow %+v: %v", f, err)
	}
}
