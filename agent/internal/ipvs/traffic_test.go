package ipvs

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
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

// echo serves at an address: it sends back line by line, until the test ends.
func (b *bed) echo(t *testing.T, at string) {
	t.Helper()
	n, err := b.Place(netip.MustParseAddrPort(at).Addr())
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	if err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", at)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					_, _ = fmt.Fprintf(c, "%s %s", at, line)
				}
			}()
		}
	}()
}

// connection is a client's connection to some echo server.
type connection struct {
	net.Conn
	in *bufio.Reader
}

func (b *bed) dial(t *testing.T, from trace.Client, to string) connection {
	t.Helper()
	n, err := b.Place(from.Addr)
	if err != nil {
		t.Fatal(err)
	}
	var c net.Conn
	if err := n.Do(func() (err error) {
		c, err = net.Dial("tcp", to)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return connection{c, bufio.NewReader(c)}
}

// ask returns which server answers.
func (c connection) ask(t *testing.T) string {
	t.Helper()
	if _, err := c.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	server, _, _ := strings.Cut(line, " ")
	return server
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
	b.echo(t, one)
	b.echo(t, two)
	table := parseTable(t, web("", one))
	sync(t, b.backend, table)
	old := b.dial(t, client("9"), "10.96.0.10:80")
	if got := old.ask(t); got != one {
		t.Fatalf("asked %s", got)
	}
	table, _ = step(t, b.backend, table, web("", two))
	b.wantWeight(t, one, "0")
	if got := old.ask(t); got != one {
		t.Errorf("the old connection went to %s", got)
	}
	for range 3 {
		if got := b.dial(t, client("9"), "10.96.0.10:80").ask(t); got != two {
			t.Errorf("a new connection went to %s", got)
		}
	}
	restarted := b.node.open(t, b.node.config())
	if r := sync(t, restarted, table); r.Writes != 0 {
		t.Errorf("a restart wrote %d times", r.Writes)
	}
	b.wantWeight(t, one, "0")
	if got := old.ask(t); got != one {
		t.Errorf("after a restart, the old connection went to %s", got)
	}
	table, _ = step(t, restarted, table, web("", one, two))
	b.wantWeight(t, one, "1")
	table, _ = step(t, restarted, table, web("", two))
	b.wantWeight(t, one, "0")
	if ds, err := restarted.Audit(context.Background()); err != nil || len(ds) != 0 {
		t.Errorf("audit: %v, error %v", ds, err)
	}
	if err := old.Conn.(*net.TCPConn).SetLinger(0); err != nil { // ends by a reset: the kernel forgets it after 10 s
		t.Fatal(err)
	}
	_ = old.Close()
	tick, deadline := time.NewTicker(time.Second), time.After(time.Minute)
	defer tick.Stop()
	for b.weight(t, one) != "" {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("still there: %s", b.node.must(t, "ipvsadm -Ln"))
		}
		if _, err := restarted.Sync(context.Background(), table, table, dataplane.Delta{}); err != nil {
			t.Fatal(err)
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

// testSchedulers sees each scheduler choose: rr takes turns, sh and dh and mh stick, those that count connections take the
// server that is idle.
func testSchedulers(t *testing.T) {
	b := newBed(t)
	servers := []string{"10.244.1.5:8080", "10.244.1.6:8080"}
	for _, s := range servers {
		b.echo(t, s)
	}
	for _, scheduler := range []string{"rr", "wrr", "sh", "dh", "mh", "lc", "wlc", "sed", "nq"} {
		t.Run(scheduler, func(t *testing.T) {
			sync(t, b.backend, parseTable(t, web("scheduler="+scheduler, servers...)))
			if got := b.node.must(t, "ipvsadm -Sn"); !strings.Contains(got, "-A -t 10.96.0.10:80 -s "+scheduler) {
				t.Fatalf("not scheduled so:\n%s", got)
			}
			const connections = 8
			open := map[string][]connection{}
			ask := func() string {
				c := b.dial(t, client("9"), "10.96.0.10:80")
				server := c.ask(t)
				open[server] = append(open[server], c)
				return server
			}
			for range connections {
				ask()
			}
			if slices.Contains([]string{"sh", "dh", "mh"}, scheduler) {
				if len(open) != 1 {
					t.Errorf("one client went to %d servers", len(open))
				}
			} else if len(open[servers[0]]) != connections/2 {
				t.Errorf("of %d connections, %d went to one of two servers", connections, len(open[servers[0]]))
			}
			if slices.Contains([]string{"lc", "wlc", "sed", "nq"}, scheduler) {
				for _, c := range open[servers[1]] {
					_ = c.Conn.(*net.TCPConn).SetLinger(0)
					_ = c.Close()
				}
				if first, second := ask(), ask(); first != servers[1] || second != servers[1] {
					t.Errorf("with %s idle, connections went to %s and %s", servers[1], first, second)
				}
			}
			sync(t, b.backend, &fwd.Table{}) // ends the connections
		})
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
	if ds, err := d.Audit(t.Context()); err != nil || len(ds) != 0 {
		t.Errorf("audit: %v, error %v", ds, err)
	}
}
