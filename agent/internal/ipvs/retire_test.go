package ipvs

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
)

// testRetire holds that a former mode keeps what its connections need, takes no new ones, and goes with the last of them; the
// sysctls get back what they had; what others have set since stays.
func testRetire(t *testing.T) {
	b := newBed(t)
	const conntrack, arp = "/proc/sys/net/ipv4/vs/conntrack", "/proc/sys/net/ipv4/conf/all/arp_announce"
	if got := b.node.must(t, "cat "+conntrack+" "+arp); got != "0\n0\n" {
		t.Fatalf("sysctls are not the kernel's defaults, but %q", got)
	}
	c := b.node.config()
	c.StrictARP = true
	b.backend = b.node.open(t, c)
	endpoint := "10.244.1.5:8080"
	b.talk(t, fwd.TCP, endpoint)
	b.talk(t, fwd.UDP, endpoint)
	sync(t, b.backend, parseTable(t, web("node-port=30080", endpoint)+
		"service default/idle:/TCP/IPv4 cluster-ip=10.96.0.11 port=80 usable\n  common 10.244.1.5:8080\n"+
		"service default/udp:/UDP/IPv4 cluster-ip=10.96.0.12 port=80 usable\n  common 10.244.1.5:8080\n"))
	if got := b.node.must(t, "cat "+conntrack+" "+arp); got != "1\n2\n" {
		t.Errorf("sysctls are %q", got)
	}
	old := b.begin(t, client("9"), fwd.TCP, "10.96.0.10:80")
	flow := b.begin(t, client("9"), fwd.UDP, "10.96.0.12:80")
	for _, c := range []string{ask(t, old), ask(t, flow)} {
		if c != endpoint {
			t.Fatalf("asked %s", c)
		}
	}
	b.retires(t, 1)
	b.retires(t, 1)
	if got, want := b.node.must(t, "ipvsadm -Sn"), "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.1.5:8080 -m -w 0\n"; got != want {
		t.Errorf("virtual servers:\n%s\nwant:\n%s", got, want)
	}
	if got := b.node.must(t, "ip route show table local proto 70"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "10.96.0.10") {
		t.Errorf("routes:\n%s", got)
	}
	if got := ask(t, old); got != endpoint {
		t.Errorf("the connection went to %s", got)
	}
	if _, err := b.Begin(client("9"), fwd.TCP, netip.MustParseAddrPort("10.96.0.10:80")); err == nil {
		t.Error("a new connection was taken")
	}
	b.node.must(t, "sysctl -q net.ipv4.conf.all.arp_announce=1")
	old.Abort()
	until(t, "the connection is forgotten", func() bool { return b.retire(t) == 0 })
	left := b.node.must(t, "ipvsadm -Sn") + b.node.must(t, "ipset save") + b.node.must(t, "ip route show table local proto 70")
	for _, save := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		if rules := b.node.must(t, save); strings.Contains(rules, chainPrefix) {
			left += rules
		}
	}
	if left != "" {
		t.Errorf("left:\n%s", left)
	}
	if got := b.node.must(t, "cat "+conntrack+" "+arp); got != "0\n1\n" {
		t.Errorf("sysctls are %q", got)
	}
}

// retire does what another mode's agent does.
func (b *bed) retire(t *testing.T) (waiting int) {
	t.Helper()
	if err := b.node.Do(func() (err error) {
		waiting, err = Retire(t.Context(), Defaults().ProcSys)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return waiting
}

func (b *bed) retires(t *testing.T, want int) {
	t.Helper()
	if got := b.retire(t); got != want {
		t.Errorf("%d virtual servers wait, want %d", got, want)
	}
}
