package ipvs

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// bed is a lab with a backend on its node.
type bed struct {
	*lab.Lab
	node    *node
	backend dataplane.Interface
}

func newBed(t *testing.T) *bed {
	t.Helper()
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	n := &node{l.Node, &fault{}}
	return &bed{l, n, n.open(t, n.config())}
}

// client is a Pod of the node.
func client(number string) trace.Client {
	return trace.Client{Kind: trace.Pod, Addr: netip.MustParseAddr("10.244.1." + number)}
}

// talk starts endpoints that keep their connections.
func (b *bed) talk(t *testing.T, protocol fwd.Protocol, endpoints ...string) {
	t.Helper()
	for _, e := range endpoints {
		c, err := b.Talk(protocol, netip.MustParseAddrPort(e))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

func (b *bed) begin(t *testing.T, from trace.Client, protocol fwd.Protocol, to string) *lab.Conversation {
	t.Helper()
	c, err := b.Begin(from, protocol, netip.MustParseAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// ask returns which endpoint answers.
func ask(t *testing.T, c *lab.Conversation) string {
	t.Helper()
	at, err := c.Ask()
	if err != nil {
		t.Fatal(err)
	}
	return at.String()
}

const facts = "node-facts pod-cidrs=10.244.1.0/24 addresses=192.0.2.11\n"

func web(options string, servers ...string) string {
	text := facts + "service default/web:/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable " + options + "\n"
	for _, s := range servers {
		text += "  common " + s + "\n"
	}
	return text
}

// testGraceful holds that a real server that leaves keeps its connections, takes no new ones, may come back, and goes
// when its connections have gone; also when the agent starts anew in the middle of it.
func testGraceful(t *testing.T) {
	b := newBed(t)
	one, two := "10.244.1.5:8080", "10.244.1.6:8080"
	b.talk(t, fwd.TCP, one, two)
	table := parseTable(t, web("", one))
	sync(t, b.backend, table)
	old := b.begin(t, client("9"), fwd.TCP, "10.96.0.10:80")
	if got := ask(t, old); got != one {
		t.Fatalf("asked %s", got)
	}
	table, _ = step(t, b.backend, table, web("", two))
	b.wantWeight(t, one, "0")
	if got := ask(t, old); got != one {
		t.Errorf("the old connection went to %s", got)
	}
	for range 3 {
		if got := ask(t, b.begin(t, client("9"), fwd.TCP, "10.96.0.10:80")); got != two {
			t.Errorf("a new connection went to %s", got)
		}
	}
	restarted := b.node.open(t, b.node.config())
	if r := sync(t, restarted, table); r.Writes != 0 {
		t.Errorf("a restart wrote %d times", r.Writes)
	}
	b.wantWeight(t, one, "0")
	if got := ask(t, old); got != one {
		t.Errorf("after a restart, the old connection went to %s", got)
	}
	table, _ = step(t, restarted, table, web("", one, two))
	b.wantWeight(t, one, "1")
	table, _ = step(t, restarted, table, web("", two))
	b.wantWeight(t, one, "0")
	if ds, err := dataplane.Compare(context.Background(), restarted); err != nil || len(ds) != 0 {
		t.Errorf("audit: %v, error %v", ds, err)
	}
	old.Abort() // the kernel forgets it after 10 s
	until(t, one+" is gone", func() bool {
		if _, err := restarted.Sync(context.Background(), table, table, dataplane.Delta{}); err != nil {
			t.Fatal(err)
		}
		return b.weight(t, one) == ""
	})
}

// testAbrupt holds that a real server of UDP or SCTP goes at once, also while it has connections, and that a flow of UDP goes on
// with another one.
func testAbrupt(t *testing.T) {
	b := newBed(t)
	one, two := "10.244.1.5:8080", "10.244.1.6:8080"
	for _, protocol := range []fwd.Protocol{fwd.UDP, fwd.SCTP} {
		b.talk(t, protocol, one, two)
		with := func(server string) string {
			return strings.ReplaceAll(web("", server), "/TCP/", "/"+protocol.String()+"/")
		}
		table := parseTable(t, with(one))
		sync(t, b.backend, table)
		old := b.begin(t, client("9"), protocol, "10.96.0.10:80")
		if got := ask(t, old); got != one {
			t.Fatalf("%v: asked %s", protocol, got)
		}
		step(t, b.backend, table, with(two))
		b.wantWeight(t, one, "")
		b.wantWeight(t, two, "1")
		if got := ask(t, b.begin(t, client("9"), protocol, "10.96.0.10:80")); got != two {
			t.Errorf("%v: a new connection went to %s", protocol, got)
		}
		if protocol == fwd.UDP {
			if err := old.Tell(); err != nil { // the packet that finds its server gone is lost
				t.Error(err)
			}
			if got := ask(t, old); got != two {
				t.Errorf("the flow went on to %s", got)
			}
		}
	}
}

// until asks again and again.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick, deadline := time.NewTicker(time.Second), time.After(time.Minute)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// weight is that of a real server in the kernel; "" is none.
func (b *bed) weight(t *testing.T, server string) string {
	t.Helper()
	for line := range strings.Lines(b.node.must(t, "ipvsadm -Sn")) {
		if w := strings.Fields(line); w[0] == "-a" && w[4] == server {
			return w[len(w)-1]
		}
	}
	return ""
}

func (b *bed) wantWeight(t *testing.T, server, want string) {
	t.Helper()
	if got := b.weight(t, server); got != want {
		t.Errorf("weight of %s is %q, want %q", server, got, want)
	}
}

// testMissingScheduler holds that a Service gets the default instead, and its owner a notice: of a scheduler that does not
// exist, and of one that this kernel turns out to lack.
func testMissingScheduler(t *testing.T) {
	const loader = "/proc/sys/kernel/modprobe"
	before, err := os.ReadFile(loader)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(loader, []byte("/bin/false"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.WriteFile(loader, before, 0o600) }()
	n := newNode(t)
	d := n.open(t, n.config())
	table := parseTable(t, web("", "10.244.1.5:8080"))
	sync(t, d, table)
	for _, scheduler := range []string{"fastest", "lblcr"} {
		var r dataplane.Report
		table, r = step(t, d, table, web("scheduler="+scheduler, "10.244.1.5:8080"))
		if len(r.Notices) != 1 || r.Notices[0].Name != "web" || !strings.Contains(r.Notices[0].Message, scheduler) {
			t.Errorf("%s: notices %v", scheduler, r.Notices)
		}
		if got := n.must(t, "ipvsadm -Sn"); !strings.Contains(got, "-A -t 10.96.0.10:80 -s rr\n") {
			t.Errorf("%s: virtual servers:\n%s", scheduler, got)
		}
	}
	if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) != 0 {
		t.Errorf("audit: %v, error %v", ds, err)
	}
}
