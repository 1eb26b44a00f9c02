package nftables

import (
	"context"
	"slices"
	stdsync "sync"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

const traces = "../../dataplane/testdata/trace"

// configFor: no prefixes means the node's first address here, so NodePortPrimary says nothing new.
func configFor(o trace.Options) Config {
	c := Defaults()
	c.DetectLocal, c.ClusterCIDRs, c.Interface = LocalMode(o.DetectLocal), o.ClusterCIDRs, o.Interface
	c.MasqueradeAll, c.NodePortAddresses = o.MasqueradeAll, o.NodePortAddresses
	return c
}

// loadTraces reads the traces of all modes, and those of this one.
func loadTraces(t *testing.T) []trace.File {
	t.Helper()
	var all []trace.File
	for _, dir := range []string{traces, "testdata"} {
		files, err := trace.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	return all
}

// TestPackets sends every case of every trace as real packets, in both families.
func TestPackets(t *testing.T) {
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, file := range loadTraces(t) {
		t.Run(file.Name+"/"+file.Family.String(), func(t *testing.T) { sendAll(t, l, file) })
	}
}

func sendAll(t *testing.T, l *lab.Lab, file trace.File) {
	servers, err := l.Serve(file.Table)
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	d := l.Node.Inside(backendIn(t, l.Node, configFor(file.Options)))
	sync(t, d, everything(file.Table))
	var wg stdsync.WaitGroup
	for _, c := range file.Cases {
		if c.Protocol == fwd.SCTP {
			continue // walked over the plan by TestWalk
		}
		wg.Go(func() { send(t, l, file, c) })
	}
	wg.Wait()
	if ds, err := d.Audit(t.Context()); err != nil || len(ds) > 0 {
		t.Errorf("audit: %v, error %v", ds, err)
	}
	if err := d.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
}

func send(t *testing.T, l *lab.Lab, file trace.File, c trace.Case) {
	want := c.For("nftables")
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
		if p.AffinitySeconds > 0 && p.Protocol == c.Protocol && slices.ContainsFunc(p.Cluster(), func(b fwd.Backend) bool { return slices.Contains(o.Endpoints, b.Addr) }) {
			return true
		}
	}
	return false
}

// stays asks often, and wants one endpoint only, among those expected.
func stays(t *testing.T, l *lab.Lab, c trace.Case, want trace.Outcome) {
	var first lab.Answer
	for i := range 12 {
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

// backendIn makes a backend for a namespace.
func backendIn(t *testing.T, n *lab.Namespace, c Config) *Backend {
	t.Helper()
	var b *Backend
	err := n.Do(func() (err error) {
		b, err = New(context.Background(), c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// step is what one Sync is asked for.
type step struct {
	before, now *fwd.Table
	delta       dataplane.Delta
}

// everything is a step to a table from an unknown state of the kernel.
func everything(now *fwd.Table) step { return step{&fwd.Table{}, now, dataplane.Delta{All: true}} }

func sync(t *testing.T, d dataplane.Interface, s step) dataplane.Report {
	t.Helper()
	r, err := d.Sync(context.Background(), s.before, s.now, s.delta)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
