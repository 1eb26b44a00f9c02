package nftables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// stickyText is a Service whose external traffic takes the local list.
func stickyText(f fwd.Family, backends ...string) *strings.Reader {
	var text strings.Builder
	text.WriteString("node-facts addresses=192.0.2.11\n" +
		"service default/sticky:/TCP/IPv4 cluster-ip=10.96.6.11 load-balancer-ips=203.0.113.62 port=80 node-port=30611 affinity-seconds=3600 external-local usable\n")
	for _, b := range backends {
		text.WriteString("  common " + b + ":8081\n")
		if strings.HasPrefix(b, "10.244.1.") {
			text.WriteString("  node " + b + ":8081\n")
		}
	}
	file, err := trace.Parse(text.String(), f)
	if err != nil {
		panic(err)
	}
	var out strings.Builder
	if err := fwd.WriteText(&out, file.Table); err != nil {
		panic(err)
	}
	return strings.NewReader(out.String())
}

// TestAffinity holds that clients stay with their endpoint whichever virtual IP they use and while others come and go, and
// lose it when it leaves the list: at once, not only when their memory times out.
func TestAffinity(t *testing.T) {
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, f := range fwd.Families() {
		t.Run(f.String(), func(t *testing.T) { affinity(t, l, f) })
	}
}

func affinity(t *testing.T, l *lab.Lab, f fwd.Family) {
	table := func(backends ...string) *fwd.Table {
		parsed, err := fwd.ParseText(stickyText(f, backends...))
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	all := table("10.244.1.5", "10.244.1.6", "10.244.2.5", "10.244.2.6")
	servers, err := l.Serve(all)
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	d := backendIn(t, l.Node, Defaults())
	synced(t, d, everything(all))
	plan := trace.Plan(f)
	var internal, balanced, nodePort netip.AddrPort
	for _, p := range all.Ports() {
		internal, balanced = netip.AddrPortFrom(p.ClusterIP, 80), netip.AddrPortFrom(p.LoadBalancerIPs[0], 80)
		nodePort = netip.AddrPortFrom(plan.Node, p.NodePort)
	}
	client := func(n byte) trace.Client {
		b := plan.Clients[trace.External].AsSlice()
		b[len(b)-1] = n
		addr, _ := netip.AddrFromSlice(b)
		return trace.Client{Kind: trace.External, Addr: addr}
	}
	ask := func(n byte, to netip.AddrPort) netip.AddrPort {
		a, err := l.Ask(client(n), fwd.TCP, to)
		if err != nil || !a.Endpoint.IsValid() {
			t.Fatalf("client %d to %v: no answer, error %v", n, to, err)
		}
		return a.Endpoint
	}
	// Clients 20 to 29 begin by the local list, 30 to 39 by the cluster list.
	got := map[byte]netip.AddrPort{}
	for n := byte(20); n < 40; n++ {
		first, others := balanced, []netip.AddrPort{balanced, nodePort, internal}
		if n >= 30 {
			first, others = internal, []netip.AddrPort{internal, internal}
		}
		got[n] = ask(n, first)
		if n >= 30 && plan.PodCIDR.Contains(got[n].Addr()) {
			others = append(others, balanced, nodePort) // its endpoint is in both lists
		}
		for _, to := range others {
			if e := ask(n, to); e != got[n] {
				t.Errorf("client %d at %v: moved from %v to %v", n, to, got[n], e)
			}
		}
	}
	// One more endpoint, and one less: only its clients move, and into the list.
	gone := got[20]
	var left []string
	for _, b := range []string{"10.244.1.5", "10.244.1.6", "10.244.2.5", "10.244.2.6"} {
		if e := table(b); !strings.Contains(listText(e), gone.String()) {
			left = append(left, b)
		}
	}
	if len(left) != 3 {
		t.Fatalf("%v is none of the endpoints", gone)
	}
	fewer := table(left...)
	synced(t, d, to(t, all, fewer))
	for n := byte(20); n < 40; n++ {
		e := ask(n, internal)
		if e == gone || got[n] != gone && e != got[n] {
			t.Errorf("client %d: moved from %v to %v, when %v went", n, got[n], e, gone)
		}
		if again := ask(n, internal); again != e {
			t.Errorf("client %d: does not stay at %v", n, e)
		}
	}
	synced(t, d, to(t, fewer, all))
	if err := d.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
}

func listText(t *fwd.Table) string {
	var text strings.Builder
	for _, p := range t.Ports() {
		for _, b := range p.Cluster() {
			text.WriteString(b.Addr.String() + " ")
		}
	}
	return text.String()
}
