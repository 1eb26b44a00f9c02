package nftables

import (
	"context"
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
	c.DetectLocal, c.ClusterCIDRs, c.Interface = dataplane.LocalMode(o.DetectLocal), o.ClusterCIDRs, o.Interface
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
	synced(t, d, everything(file.Table))
	var wg stdsync.WaitGroup
	for _, c := range file.Cases {
		if c.Protocol == fwd.SCTP && !lab.HasSCTP() {
			continue // walked over the plan by TestWalk
		}
		wg.Go(func() { send(t, l, file, c) })
	}
	wg.Wait()
	if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) > 0 {
		t.Errorf("audit: %v, error %v", ds, err)
	}
	if err := d.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
}

func send(t *testing.T, l *lab.Lab, file trace.File, c trace.Case) {
	if err := l.Check("nftables", file, c); err != nil {
		t.Error(err)
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

func synced(t *testing.T, d dataplane.Interface, s step) dataplane.Report {
	t.Helper()
	r, err := d.Sync(context.Background(), s.before, s.now, s.delta)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
