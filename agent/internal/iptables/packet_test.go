package iptables

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

func configFor(o trace.Options) Config {
	c := Defaults()
	c.DetectLocal, c.ClusterCIDRs, c.Interface = dataplane.LocalMode(o.DetectLocal), o.ClusterCIDRs, o.Interface
	c.MasqueradeAll = o.MasqueradeAll
	c.NodePortAddresses, c.NodePortPrimary = o.NodePortAddresses, o.NodePortPrimary
	return c
}

func loadTraces(t *testing.T) []trace.File {
	t.Helper()
	files, err := trace.Load(traces)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestPackets sends every case of every trace as real packets, in both flavours and both families.
func TestPackets(t *testing.T) { sendFiles(t, loadTraces(t)) }

func sendFiles(t *testing.T, files []trace.File) {
	t.Helper()
	for _, flavor := range []Flavor{FlavorNFT, FlavorLegacy} {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			l, err := lab.New()
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for _, file := range files {
				t.Run(file.Name+"/"+file.Family.String(), func(t *testing.T) { sendAll(t, l, flavor, file) })
			}
		})
	}
}

func sendAll(t *testing.T, l *lab.Lab, flavor Flavor, file trace.File) {
	servers, err := l.Serve(file.Table)
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	config := configFor(file.Options)
	config.Flavor = flavor
	d := backendIn(t, l, config)
	sync(t, d, everything(file.Table))
	var wg stdsync.WaitGroup
	slots := make(chan struct{}, 8) // more at once only wait for one another
	for _, c := range file.Cases {
		if c.Protocol == fwd.SCTP && !lab.HasSCTP() {
			continue // walked over the plan by TestWalk
		}
		slots <- struct{}{}
		wg.Go(func() {
			send(t, l, file, c)
			<-slots
		})
	}
	wg.Wait()
	if err := d.Cleanup(context.Background()); err != nil {
		t.Error(err)
	}
}

func send(t *testing.T, l *lab.Lab, file trace.File, c trace.Case) {
	if err := l.Check("iptables", file, c); err != nil {
		t.Error(err)
	}
}

// backendIn makes a backend that works in the lab's node.
func backendIn(t *testing.T, l *lab.Lab, c Config) dataplane.Interface {
	t.Helper()
	var b *Backend
	err := l.Node.Do(func() (err error) {
		b, err = New(context.Background(), c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return l.Node.Inside(b)
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
