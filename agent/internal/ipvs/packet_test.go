package ipvs

import (
	stdsync "sync"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/agent/internal/iptables"
)

func configFor(o trace.Options) Config {
	c := Defaults()
	c.Rules.DetectLocal, c.Rules.ClusterCIDRs, c.Rules.Interface = dataplane.LocalMode(o.DetectLocal), o.ClusterCIDRs, o.Interface
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
		wg.Go(func() { send(t, l, file, c) })
	}
	wg.Wait()
	if t.Failed() {
		t.Logf("%s\n%s\n%s", n.must(t, "ipvsadm -Ln"), n.must(t, "ipset save"), n.must(t, "ip addr"))
	}
}

func send(t *testing.T, l *lab.Lab, file trace.File, c trace.Case) {
	if err := l.Check("ipvs", file, c); err != nil {
		t.Error(err)
	}
}
