package ipvs

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// balanced is a Service under a Local policy, with endpoints on another node. Its mark is balancedMark.
func balanced(servers ...string) string {
	text := facts + "service default/web:/TCP/IPv4 load-balancer-ips=203.0.113.10 port=80 node-port=30080 external-local usable\n"
	for _, s := range servers {
		text += "  common " + s + "\n"
	}
	return text
}

const (
	balancer     = "203.0.113.10:80"
	balancedMark = 0x54311580
)

func theNode() trace.Client { return trace.Client{Kind: trace.Node, Addr: trace.Plan(fwd.IPv4).Node} }

// testShortcut holds that real servers of a virtual server by mark that leave keep the connections of Pods and of the node, also
// when the agent starts anew, and when another mode takes over: then nothing else stays, and nothing at all in the end.
func testShortcut(t *testing.T) {
	b := newBed(t)
	const one, two = "10.244.2.5:8080", "10.244.2.6:8080"
	b.talk(t, fwd.TCP, one, two)
	table := parseTable(t, balanced(one))
	sync(t, b.backend, table)
	old := []*lab.Conversation{b.begin(t, client("9"), fwd.TCP, balancer), b.begin(t, theNode(), fwd.TCP, balancer)}
	hold := func(when string) {
		t.Helper()
		for i, c := range old {
			if got := ask(t, c); got != one {
				t.Errorf("%s, connection %d went to %s", when, i, got)
			}
		}
	}
	hold("at first")
	table, _ = step(t, b.backend, table, balanced(two))
	b.wantWeight(t, one, "0")
	hold("without its real server")
	for range 3 {
		c := b.begin(t, client("9"), fwd.TCP, balancer)
		if got := ask(t, c); got != two {
			t.Errorf("a new connection went to %s", got)
		}
		c.Abort()
	}
	if r := sync(t, b.node.open(t, b.node.config()), table); r.Writes != 0 {
		t.Errorf("a restart wrote %d times", r.Writes)
	}
	hold("after a restart")
	b.retires(t, 1)
	b.retires(t, 1)
	hold("in another mode")
	has := b.node.must(t, "ipvsadm -Sn")
	if strings.Count(has, "-A ") != 1 || !strings.Contains(has, fmt.Sprintf("-A -f %d ", balancedMark)) {
		t.Errorf("virtual servers:\n%s", has)
	}
	if got := b.node.must(t, "ip route show table local proto 70"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "203.0.113.10") {
		t.Errorf("routes:\n%s", got)
	}
	for _, c := range old {
		c.Abort()
	}
	until(t, "the connections are forgotten", func() bool { return b.retire(t) == 0 })
	if left := b.node.must(t, "ipvsadm -Sn") + b.node.must(t, "ipset save") + b.node.must(t, "ip route show table local proto 70"); left != "" {
		t.Errorf("left:\n%s", left)
	}
}

// testForeignMarks holds that an audit finds what is wrong with marks and virtual servers by mark, and that it is repaired.
func testForeignMarks(t *testing.T) {
	n := newNode(t)
	d, table := n.open(t, n.config()), parseTable(t, balanced("10.244.2.5:8080"))
	sync(t, d, table)
	for _, edit := range []string{
		fmt.Sprintf("ipvsadm -e -f %d -r 10.244.2.5:8080 -m -w 7", balancedMark),
		fmt.Sprintf("ipvsadm -D -f %d", balancedMark),
		fmt.Sprintf("ipvsadm -A -f %d -s rr", balancedMark+1),
		fmt.Sprintf("ipset -exist add FL-LOCAL-IPv4 203.0.113.10,tcp:80 skbmark %#x", balancedMark+1),
	} {
		n.must(t, edit)
		if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) != 1 {
			t.Errorf("after %s, an audit found %v, error %v", edit, ds, err)
		}
		sync(t, d, table)
		if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) != 0 {
			t.Errorf("repaired after %s, an audit found %v, error %v", edit, ds, err)
		}
	}
}

// testNoTrace holds that packets carry no mark of ours any more where they leave the node: neither the first of a connection nor
// those that come before an answer, of Pods or of the node.
func testNoTrace(t *testing.T) {
	b := newBed(t)
	const remote, silent = "10.244.2.5:8080", "10.244.2.6:8080"
	b.talk(t, fwd.TCP, remote)
	b.talk(t, fwd.UDP, remote)
	text := balanced(remote)
	_, text, _ = strings.Cut(text, facts)
	quiet := strings.NewReplacer("/TCP/", "/UDP/", "default/web", "default/quiet", "203.0.113.10", "203.0.113.11", "30080", "30081", remote, silent).Replace(text)
	sync(t, b.backend, parseTable(t, facts+text+strings.ReplaceAll(text, "/TCP/", "/UDP/")+quiet))
	b.node.must(t, "tc qdisc add dev up1 clsact")
	b.node.must(t, fmt.Sprintf("tc filter add dev up1 egress protocol ip prio 1 handle %#x/%#x fw action pass", markTag, 0xf0010000))
	count := regexp.MustCompile(`Sent \d+ bytes (\d+) pkt`)
	marked := func() int {
		found := count.FindStringSubmatch(b.node.must(t, "tc -s filter show dev up1 egress"))
		if found == nil {
			t.Fatal("tc counts nothing")
		}
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []trace.Client{client("9"), theNode()} {
		for _, protocol := range []fwd.Protocol{fwd.TCP, fwd.UDP} {
			if got := ask(t, b.begin(t, c, protocol, balancer)); got != remote {
				t.Errorf("%v: %s answered", c, got)
			}
		}
		unheard := b.begin(t, c, fwd.UDP, "203.0.113.11:80")
		for range 3 {
			_ = unheard.Tell() // that nobody listens may be known by then
		}
	}
	if n := marked(); n != 0 {
		t.Errorf("%d packets left with a mark", n)
	}
	b.node.must(t, fmt.Sprintf("iptables-legacy -t mangle -A POSTROUTING -o up1 -p tcp -j MARK --set-mark %#x", markTag))
	ask(t, b.begin(t, client("9"), fwd.TCP, remote))
	if marked() == 0 {
		t.Error("marked packets are not counted: nothing is tested")
	}
}

// testFirewall holds that answers and the ports of health checks get through where the host drops what nobody accepts.
func testFirewall(t *testing.T) {
	b := newBed(t)
	const endpoint, health, other = "10.244.1.5:8080", "192.0.2.11:30399", "192.0.2.11:30398"
	b.talk(t, fwd.TCP, endpoint, health, other)
	sync(t, b.backend, parseTable(t, facts+
		"service default/web:/TCP/IPv4 load-balancer-ips=203.0.113.10 port=80 health-check-node-port=30399 external-local usable\n"+
		"  common 10.244.1.5:8080\n  node 10.244.1.5:8080\n"))
	outside := trace.Client{Kind: trace.External, Addr: netip.MustParseAddr("198.51.100.7")}
	b.node.must(t, "iptables-legacy -P FORWARD DROP")
	if got := ask(t, b.begin(t, outside, fwd.TCP, balancer)); got != endpoint {
		t.Errorf("%s answered", got)
	}
	b.node.must(t, "iptables-legacy -P INPUT DROP")
	if got := ask(t, b.begin(t, outside, fwd.TCP, health)); got != health {
		t.Errorf("%s answered", got)
	}
	if _, err := b.Begin(outside, fwd.TCP, netip.MustParseAddrPort(other)); err == nil {
		t.Error("nothing is dropped: nothing is tested")
	}
}

// testOthersMarks holds that the short cut bears with a program that keeps its verdict on packets to the host in bits 16 to 19 of
// their mark, as Calico does by default, and that others lead to local endpoints, of which there are none here.
func testOthersMarks(t *testing.T) {
	b := newBed(t)
	const remote = "10.244.2.5:8080"
	b.talk(t, fwd.TCP, remote)
	sync(t, b.backend, parseTable(t, balanced(remote)))
	b.node.must(t, "iptables-legacy -A INPUT -j MARK --set-xmark 0x0/0xf0000")
	b.node.must(t, "iptables-legacy -A INPUT -j MARK --set-xmark 0x10000/0x10000")
	if got := ask(t, b.begin(t, client("9"), fwd.TCP, balancer)); got != remote {
		t.Errorf("%s answered", got)
	}
	b.node.must(t, "iptables-legacy -A INPUT -j MARK --set-xmark 0x100000/0x100000")
	b.node.must(t, "iptables-legacy -A INPUT -j MARK --set-xmark 0x0/0x200000")
	if c, err := b.Begin(client("9"), fwd.TCP, netip.MustParseAddrPort(balancer)); err == nil {
		t.Errorf("a mark that was changed led to %s", ask(t, c))
	}
}
