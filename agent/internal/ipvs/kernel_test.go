package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/conformance"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/lab/uml"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestConformance runs in a kernel that has IPVS. It takes as long as all of TestKernel, beside which it runs.
func TestConformance(t *testing.T) {
	if uml.EnterBeside(t) {
		conformance.Run(t, func(t *testing.T) conformance.Harness { return newNode(t).harness(t) })
	}
}

// TestKernel is all else that runs in such a kernel.
func TestKernel(t *testing.T) {
	if !uml.EnterBeside(t) {
		return
	}
	t.Run("packets", testPackets)
	t.Run("graceful", testGraceful)
	t.Run("abrupt", testAbrupt)
	t.Run("same port", testSamePort)
	t.Run("shared port", testSharedPort)
	t.Run("shortcut", testShortcut)
	t.Run("no trace", testNoTrace)
	t.Run("foreign marks", testForeignMarks)
	t.Run("firewall", testFirewall)
	t.Run("others' marks", testOthersMarks)
	t.Run("work", testWork)
	t.Run("document", testDocument)
	t.Run("retire", testRetire)
	t.Run("missing scheduler", testMissingScheduler) // before all schedulers are loaded
	t.Run("schedulers", testSchedulers)
	t.Run("ownership", testOwnership)
	t.Run("addresses", testAddresses)
	t.Run("timeouts", testTimeouts)
}

// node is a network namespace with a backend, whose changes can be made to fail.
type node struct {
	*lab.Namespace
	fault *fault
}

func newNode(tb testing.TB) *node {
	tb.Helper()
	ns, err := lab.NewNamespace()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(ns.Close)
	n := &node{ns, &fault{}}
	const lines = "link add d0 type dummy\nlink set d0 addrgenmode none\nlink set d0 up\naddr add 192.0.2.11/24 dev d0\naddr add 2001:db8::11/64 dev d0 nodad\n"
	if err := n.Do(func() error {
		_, err := run(context.Background(), []byte(lines), "ip", "-batch", "-") // one process: each takes long in this kernel
		return err
	}); err != nil {
		tb.Fatal(err)
	}
	return n
}

// shell runs a command line in the namespace.
func (n *node) shell(line string) (out string, err error) {
	err = n.Do(func() error {
		words := strings.Fields(line)
		b, err := run(context.Background(), nil, words[0], words[1:]...)
		out = string(b)
		return err
	})
	return out, err
}

func (n *node) must(tb testing.TB, line string) string {
	tb.Helper()
	out, err := n.shell(line)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func (n *node) edit(line string) func() error {
	return func() error {
		_, err := n.shell(line)
		return err
	}
}

func (n *node) harness(t *testing.T) conformance.Harness {
	return conformance.Harness{
		New:   func() dataplane.Interface { return n.open(t, n.config()) },
		Dump:  func() string { return n.dump(t) },
		Fault: n.fault.set,
		Foreign: func() error {
			for _, line := range []string{
				"ipvsadm -A -t 198.18.0.1:80 -s rr", "ipvsadm -a -t 198.18.0.1:80 -r 198.18.0.2:80 -m", "ipvsadm -A -f 7 -s wlc",
				"ipset create KUBE-CLUSTER-IP hash:ip,port", "ipset add KUBE-CLUSTER-IP 10.96.0.1,tcp:80",
				"ip route add local 198.18.0.1 dev lo", "iptables-legacy -t nat -N KUBE-SERVICES", "iptables-legacy -t nat -A PREROUTING -j KUBE-SERVICES",
			} {
				if _, err := n.shell(line); err != nil {
					return err
				}
			}
			return nil
		},
		Edits: map[string]func() error{
			"flush virtual servers": n.edit("ipvsadm -C"),
			"foreign weight":        n.someServer(t, "ipvsadm -e %s -r %s -m -w 7"),
			"foreign real server":   n.someServer(t, "ipvsadm -a %s -r 198.18.3.3:80 -m -w %.0s1"),
			"other scheduler":       n.someServer(t, "ipvsadm -E %s -s%.0s lc"),
			"remove a route":        n.edit("ip route del local 10.96.255.255 dev lo table local"),
			"foreign route":         n.edit("ip route add local 198.18.9.9 dev lo table local proto 70"),
			"empty a set":           n.edit("ipset flush FL-CLUSTER-IPv4"),
			"foreign member":        n.edit("ipset add FL-DROPPED-IPv6 fd60::7,udp:7"),
			"flush nat":             n.edit("iptables-legacy -t nat -F"),
			"flush a chain":         n.edit("ip6tables-legacy -t mangle -F FLV-BLOCK"),
			"foreign rule":          n.edit("iptables-legacy -I FLV-INPUT -j ACCEPT"),
			"lose an anchor":        n.edit("iptables-legacy -D INPUT -m comment --comment fairlead -j FLV-INPUT"),
		},
	}
}

// someServer edits the first virtual server that has a real server; the format gets both.
func (n *node) someServer(t *testing.T, format string) func() error {
	return func() error {
		for line := range strings.Lines(n.must(t, "ipvsadm -Sn")) {
			if w := strings.Fields(line); w[0] == "-a" {
				_, err := n.shell(fmt.Sprintf(format, w[1]+" "+w[2], w[4]))
				return err
			}
		}
		return errors.New("no real server")
	}
}

func (n *node) config() Config {
	c := Defaults()
	c.Rules.DetectLocal, c.Rules.Flavor = dataplane.LocalNodeCIDR, iptables.FlavorLegacy
	return c
}

// open makes a backend that works in the namespace.
func (n *node) open(tb testing.TB, c Config) dataplane.Interface {
	tb.Helper()
	var b *Backend
	err := n.Do(func() (err error) {
		b, err = New(context.Background(), c)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	b.kernel.around = n.fault.around
	tb.Cleanup(b.Close)
	return n.Inside(b)
}

// dump prints what the host's own tools say, sorted, without what depends on chance and history.
func (n *node) dump(t *testing.T) string {
	t.Helper()
	var lines []string
	for _, command := range []string{
		"ipvsadm -Sn", "ipset save", "ip route show table local", "ip -6 route show table local", "iptables-legacy-save", "ip6tables-legacy-save",
	} {
		table := ""
		for line := range strings.Lines(n.must(t, command)) {
			words := strings.Fields(line)
			switch {
			case len(words) == 0 || words[0] == "#" || words[0] == "COMMIT":
				continue
			case words[0][0] == '*':
				table = words[0]
				continue
			case words[0][0] == ':':
				if words[1] != "-" {
					continue // a built-in chain: its table is in use, or was
				}
				words = words[:2]
			case words[0] == "create":
				words = words[:3]
			}
			lines = append(lines, command+table+" "+strings.Join(words, " "))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// fault counts changes down to the one that fails. Conformance tries them one by one; there are so many, each with a table
// of its own, that a step of that count stands for several changes here.
type fault struct {
	left atomic.Int64
	late atomic.Bool
}

const changesPerStep = 131

var errFault = errors.New("injected fault")

func (f *fault) set(n int, late bool) {
	f.late.Store(late)
	f.left.Store(int64(n) * changesPerStep)
}

func (f *fault) around(change func() error) error {
	hit := f.left.Add(-1) == 0
	if hit && !f.late.Load() {
		return errFault
	}
	if err := change(); err != nil || !hit {
		return err
	}
	return errFault
}

func parseTable(tb testing.TB, text string) *fwd.Table {
	tb.Helper()
	table, err := fwd.ParseText(strings.NewReader(text))
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// sync brings the kernel to a table from wherever it is.
func sync(tb testing.TB, d dataplane.Interface, now *fwd.Table) dataplane.Report {
	tb.Helper()
	r, err := d.Sync(context.Background(), &fwd.Table{}, now, dataplane.Delta{All: true})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// step brings the kernel from one table to the next.
func step(t *testing.T, d dataplane.Interface, before *fwd.Table, text string) (*fwd.Table, dataplane.Report) {
	t.Helper()
	now, changed, err := before.Apply(fwd.DiffTables(before, parseTable(t, text)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Sync(context.Background(), before, now, dataplane.Delta{Changed: changed})
	if err != nil {
		t.Fatal(err)
	}
	return now, r
}

// testOwnership holds that virtual servers of others stay, also in ranges that are left to them.
func testOwnership(t *testing.T) {
	n := newNode(t)
	n.must(t, "ipvsadm -A -t 198.18.0.1:80 -s rr")
	n.must(t, "ipvsadm -A -t 10.96.0.99:80 -s wlc")
	c := n.config()
	c.Exclude = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/16")}
	d := n.open(t, c)
	sync(t, d, parseTable(t, `
service default/ours:/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable
  common 10.244.1.5:8080
service default/adopted:/TCP/IPv4 cluster-ip=10.96.0.99 port=80 usable
service default/excluded:/TCP/IPv4 cluster-ip=10.96.0.11 external-ips=198.18.0.1 port=80 usable
  common 10.244.1.5:8080
`))
	got := n.must(t, "ipvsadm -Sn")
	for _, want := range []string{"-A -t 198.18.0.1:80 -s rr\n", "-A -t 10.96.0.99:80 -s rr\n", "-A -t 10.96.0.11:80 -s rr\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "-a -t 198.18.0.1:80") {
		t.Errorf("a real server in an excluded range:\n%s", got)
	}
	if err := d.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	if got := n.must(t, "ipvsadm -Sn"); got != "-A -t 198.18.0.1:80 -s rr\n" {
		t.Errorf("after clean-up:\n%s", got)
	}
}

// testAddresses holds that node ports follow the addresses of the host, and that a virtual IP that a device carries is
// left alone.
func testAddresses(t *testing.T) {
	n := newNode(t)
	n.must(t, "ip addr add 203.0.113.5/32 dev d0")
	d := n.open(t, n.config())
	table := parseTable(t, `
node-facts addresses=192.0.2.11
service default/web:/TCP/IPv4 cluster-ip=10.96.0.10 load-balancer-ips=203.0.113.5,203.0.113.6 port=80 node-port=30080 usable
  common 10.244.1.5:8080
`)
	sync(t, d, table)
	ours := n.must(t, "ip route show table local proto 70")
	if strings.Contains(ours, "203.0.113.5") || !strings.Contains(ours, "local 203.0.113.6 dev lo scope host src 192.0.2.11") {
		t.Errorf("routes:\n%s", ours)
	}
	n.must(t, "ip addr add 192.0.2.12/24 dev d0")
	if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) != 1 {
		t.Errorf("audit after a new address: %v, error %v", ds, err)
	}
	sync(t, d, table)
	if got := n.must(t, "ipvsadm -Sn"); !strings.Contains(got, "-A -t 192.0.2.12:30080 -s rr") {
		t.Errorf("no node port at the new address:\n%s", got)
	}
}

// testTimeouts holds that the kernel gets the configured idle times, and keeps those that are not configured; and that a
// kernel without the sysctls that are wanted will do.
func testTimeouts(t *testing.T) {
	n := newNode(t)
	said := func() string { return strings.TrimSpace(n.must(t, "ipvsadm -L --timeout")) }
	table := parseTable(t, web("", "10.244.1.5:8080"))
	c := n.config()
	c.ProcSys = t.TempDir()
	sync(t, n.open(t, c), table)
	if got, want := said(), "Timeout (tcp tcpfin udp): 900 120 300"; got != want {
		t.Errorf("%s, want the kernel's own: %s", got, want)
	}
	c = n.config()
	c.TCPTimeout, c.UDPTimeout = 20*time.Minute, 7*time.Second
	sync(t, n.open(t, c), table)
	if got, want := said(), "Timeout (tcp tcpfin udp): 1200 120 7"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
