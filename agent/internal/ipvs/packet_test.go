package ipvs

import (
	"slices"
	stdsync "sync"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

func configFor(o trace.Options) Config {
	c := Defaults()
	c.Rules.DetectLocal, c.Rules.ClusterCIDRs, c.Rules.Interface = iptables.LocalMode(o.DetectLocal), o.ClusterCIDRs, o.Interface
	c.Rules.MasqueradeAll, c.Rules.Flavor = o.MasqueradeAll, iptables.FlavorLegacy // UML has no nf_tables for IPv4 and IPv6
	c.Rules.NodePortAddresses, c.Rules.NodePortPrimary = o.NodePortAddresses, o.NodePortPrimary
	return c
}

// testPackets sends every case of every trace as real packets, in both families.
func testPackets(t *testing.T) {
	files, err := trace.Load("../../dataplane/testdata/trace")
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// Each file finds what the one before left, as a new agent with other options and another table would.
	for _, file := range files {
		t.Run(file.Name+"/"+file.Family.String(), func(t *testing.T) { sendAll(t, l, file) })
	}
}

func sendAll(t *testing.T, l *lab.Lab, file trace.File) {
	servers, err := l.Serve(file.Table)
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	n := &node{l.Node, &fault{}}
	d := n.open(t, configFor(file.Options))
	sync(t, d, file.Table)
	var wg stdsync.WaitGroup
	for _, c := range file.Cases {
		if c.Protocol != fwd.SCTP { // the lab has no SCTP servers
			wg.Go(func() { send(t, l, file, c) })
		}
	}
	wg.Wait()
	if t.Failed() {
		t.Logf("%s\n%s\n%s", n.must(t, "ipvsadm -Ln"), n.must(t, "ipset save"), n.must(t, "ip addr"))
	}
}

func send(t *testing.T, l *lab.Lab, file trace.File, c trace.Case) {
	want := c.For("ipvs")
	if sticky(file.Table, c, want) {
		stays(t, l, c, want)
		return
	}
	got, err := l.Observe(c, want)
	if err != nil || !got.Equal(want) {
		t.Errorf("%s.trace:%d: %v %v to %v: got %v, want %v (error %v)", file.Name, c.Line, c.Client, c.Protocol, c.To, got, want, err)
	}
}

// sticky reports whether the endpoints of a case belong to a Service port with affinity.
func sticky(table *fwd.Table, c trace.Case, o trace.Outcome) bool {
	for _, p := range table.Ports() {
		inUse := func(b fwd.Backend) bool { return slices.Contains(o.Endpoints, b.Addr) }
		if p.AffinitySeconds > 0 && p.Protocol == c.Protocol && slices.ContainsFunc(p.Cluster(), inUse) {
			return true
		}
	}
	return false
}

// stays asks often, and wants one endpoint only, among those expected.
func stays(t *testing.T, l *lab.Lab, c trace.Case, want trace.Outcome) {
	var first lab.Answer
	for i := range 8 {
		a, err := l.Ask(c.Client, c.Protocol, c.To)
		switch {
		case err != nil:
			t.Errorf("line %d: %v", c.Line, err)
			return
		case i == 0:
			first = a
		case a != first:
			t.Errorf("line %d: client moved from %v to %v", c.Line, first, a)
			return
		}
		if !slices.Contains(want.Endpoints, a.Endpoint) || want.Masquerade == (a.Client == c.Client.Addr) {
			t.Errorf("line %d: got %v, want one of %v", c.Line, a, want)
			return
		}
	}
}
