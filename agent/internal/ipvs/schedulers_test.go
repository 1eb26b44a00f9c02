package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// What schedulers do with the connections of one client, and of several.
const (
	alternates  = iota // each new connection to the next server
	bySource           // each client has its server
	byService          // all clients of an address have the same server
	leastOpen          // to the server with the fewest connections
	leastActive        // the same, but only established connections count, which UDP has none of: all to one server
)

// testSchedulers sees each scheduler choose, in both families and for each protocol. Associations of SCTP are connections. Those
// whose choice takes weights, or caches in many places, to be told from others' are seen to work.
func testSchedulers(t *testing.T) {
	b := newBed(t)
	schedulers := []struct {
		name    string
		chooses int
	}{
		{"rr", alternates},
		{"wrr", alternates},
		{"sh", bySource},
		{"mh", bySource},
		{"dh", byService},
		{"lc", leastOpen},
		{"wlc", leastOpen},
		{"sed", leastActive},
		{"nq", leastActive},
	}
	text := facts
	var trials []trial
	for _, f := range fwd.Families() {
		for _, protocol := range fwd.Protocols() {
			servers := []string{address(f, "10.244.1.5:8080"), address(f, "10.244.1.6:8080")}
			b.talk(t, protocol, servers...)
			for i, s := range schedulers {
				at := address(f, fmt.Sprintf("10.96.1.%d:80", 1+i))
				trials = append(trials, trial{b, f, protocol, s.name, s.chooses, at, servers})
				text += fmt.Sprintf("service default/%s:%v/%v/%v cluster-ip=%v port=80 scheduler=%s usable\n", s.name, protocol, protocol, f,
					netip.MustParseAddrPort(at).Addr(), s.name)
				for _, server := range servers {
					text += "  common " + server + "\n"
				}
			}
		}
	}
	others := map[string]string{"fo": "10.96.2.1:80", "lblc": "10.96.2.2:80", "lblcr": "10.96.2.3:80", "ovf": "10.96.2.4:80"}
	for name, at := range others {
		text += fmt.Sprintf("service default/%s:/TCP/IPv4 cluster-ip=%v port=80 scheduler=%s usable\n  common 10.244.1.5:8080\n", name,
			netip.MustParseAddrPort(at).Addr(), name)
	}
	sync(t, b.backend, parseTable(t, text))
	has := b.node.must(t, "ipvsadm -Sn")
	for name, at := range others {
		if !strings.Contains(has, at+" -s "+name+"\n") {
			t.Errorf("%s is not used:\n%s", name, has)
		}
		if got := ask(t, b.begin(t, client("9"), fwd.TCP, at)); got != "10.244.1.5:8080" {
			t.Errorf("%s: %s answered", name, got)
		}
	}
	if all := len(schedulers) + len(others); all != len(Schedulers()) {
		t.Errorf("%d schedulers are tried, there are %v", all, Schedulers())
	}
	for _, s := range trials {
		t.Run(fmt.Sprintf("%s/%v/%v", s.scheduler, s.family, s.protocol), func(t *testing.T) {
			if !strings.Contains(has, s.at+" -s "+s.scheduler+"\n") {
				t.Fatalf("not scheduled so:\n%s", has)
			}
			s.run(t)
		})
	}
}

// address is one of the lab's in a family.
func address(f fwd.Family, ipv4 string) string {
	return netip.MustParseAddrPort(trace.InFamily(ipv4, f)).String()
}

// trial is a scheduler at work for one Service port, with two servers.
type trial struct {
	*bed
	family    fwd.Family
	protocol  fwd.Protocol
	scheduler string
	chooses   int
	at        string
	servers   []string
}

func (s trial) run(t *testing.T) {
	open := map[string][]*lab.Conversation{}
	connect := func(from string) string {
		client := trace.Client{Kind: trace.Pod, Addr: netip.MustParseAddrPort(address(s.family, from+":1")).Addr()}
		c := s.begin(t, client, s.protocol, s.at)
		server := ask(t, c)
		open[server] = append(open[server], c)
		return server
	}
	var chosen []string
	for range 4 {
		chosen = append(chosen, connect("10.244.1.9"))
	}
	same := func(list []string) bool { return len(slices.Compact(slices.Clone(list))) == 1 }
	chooses, servers := s.chooses, s.servers
	if chooses == leastActive && s.protocol != fwd.UDP {
		chooses = leastOpen
	}
	switch chooses {
	case alternates, leastOpen:
		if len(open[servers[0]]) != 2 || len(open[servers[1]]) != 2 || chooses == alternates && same(chosen[1:3]) {
			t.Errorf("four connections went to %v", chosen)
		}
	case leastActive:
		if !same(chosen) {
			t.Errorf("four flows went to %v", chosen)
		}
	case bySource, byService:
		others := s.others(t, connect)
		if !same(chosen) || same(others) != (chooses == byService) {
			t.Errorf("one client's connections went to %v, those of other clients to %v", chosen, others)
		}
	}
	if chooses == leastOpen && s.protocol != fwd.UDP { // flows of UDP have no end
		for _, c := range open[servers[1]] {
			c.Abort()
		}
		// The kernel handles what is sent between namespaces at once, or a little later (ksoftirqd), and the scheduler must not choose before.
		until(t, servers[1]+" is idle", func() bool { return s.active(t) == "0" })
		if first, second := connect("10.244.1.9"), connect("10.244.1.9"); first != servers[1] || second != servers[1] {
			t.Errorf("with %s idle, connections went to %s and %s", servers[1], first, second)
		}
	}
}

// active is the number of established connections that the kernel counts at the second server.
func (s trial) active(t *testing.T) string {
	t.Helper()
	var protocol, at string
	for line := range strings.Lines(s.node.must(t, "ipvsadm -Ln")) {
		switch w := strings.Fields(line); {
		case w[0] != "->":
			protocol, at = w[0], w[1]
		case protocol == s.protocol.String() && at == s.at && w[1] == s.servers[1]:
			return w[4]
		}
	}
	return ""
}

// others connects clients that are not the first one.
func (s trial) others(t *testing.T, connect func(from string) string) []string {
	t.Helper()
	var chosen []string
	for number := range 8 {
		chosen = append(chosen, connect(fmt.Sprintf("10.244.2.%d", 20+number)))
	}
	slices.Sort(chosen)
	return chosen
}
