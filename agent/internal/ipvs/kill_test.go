package ipvs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/proto/fwd"
)

// victim is set in the environment of a process that syncs until it is killed.
const victim = "FAIRLEAD_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victim) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, syncForever(context.Background()))
	os.Exit(1)
}

// syncForever goes from table to table; it returns only with an error.
func syncForever(ctx context.Context) error {
	c := Defaults()
	c.Rules.DetectLocal, c.Rules.Flavor = iptables.LocalNodeCIDR, iptables.FlavorLegacy
	d, err := New(ctx, c)
	if err != nil {
		return err
	}
	before, delta := &fwd.Table{}, dataplane.Delta{All: true}
	for round := 0; ; round++ {
		want, err := fwd.ParseText(strings.NewReader(shifting(round)))
		if err != nil {
			return err
		}
		now, changed, err := before.Apply(fwd.DiffTables(before, want))
		if err != nil {
			return err
		}
		delta.Changed = changed
		if _, err := d.Sync(ctx, before, now, delta); err != nil {
			return err
		}
		before, delta = now, dataplane.Delta{}
	}
}

// shifting is a table with one Service that is always the same, and some that differ from round to round in what they
// need: endpoints, kinds of addresses, policies, or whether they are there.
func shifting(round int) string {
	text := web("", "10.244.1.5:8080")
	for i := range 30 {
		n := i + round
		if n%7 == 0 {
			continue
		}
		protocol := fwd.Protocols()[i%3]
		text += fmt.Sprintf("service default/s%d:/%v/IPv4 cluster-ip=10.96.1.%d port=80 usable", i, protocol, 1+i)
		if n%3 == 0 {
			text += fmt.Sprintf(" node-port=%d", 30000+i)
		}
		if n%4 == 0 {
			text += fmt.Sprintf(" load-balancer-ips=203.0.113.%d source-ranges=198.51.100.0/24", 1+i)
		}
		if n%5 == 0 {
			text += " external-local"
		}
		text += "\n"
		for e := range n % 4 {
			text += fmt.Sprintf("  common 10.244.2.%d:8080\n", 1+e)
		}
	}
	return text
}

// testKill holds that an agent may be killed at any moment: a Service that does not change keeps its connections, and
// one clean start brings the kernel to the table, with nothing left over.
func testKill(t *testing.T) {
	b := newBed(t)
	server := "10.244.1.5:8080"
	b.echo(t, server)
	sync(t, b.backend, parseTable(t, shifting(0)))
	old := b.dial(t, client("9"), "10.96.0.10:80")
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)) //nolint:gosec // chance, no secret
	const kills = 12
	for range kills {
		b.killOne(t, time.Duration(rng.IntN(2000))*time.Millisecond)
		if got := old.ask(t); got != server {
			t.Fatalf("the connection went to %s", got)
		}
	}
	d := b.node.open(t, b.node.config())
	table := parseTable(t, shifting(1))
	sync(t, d, table)
	if ds, err := d.Audit(t.Context()); err != nil || len(ds) != 0 {
		t.Errorf("audit: %v, error %v", ds, err)
	}
	if got := old.ask(t); got != server {
		t.Errorf("the connection went to %s", got)
	}
	if err := d.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	left := b.node.must(t, "ipvsadm -Sn") + b.node.must(t, "ipset save") + b.node.must(t, "ip route show table local proto 70")
	if left != "" {
		t.Errorf("after clean-up:\n%s", left)
	}
}

// killOne starts a process that syncs in the bed's node, and kills it after a time.
func (b *bed) killOne(t *testing.T, after time.Duration) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), victim+"=1")
	var said strings.Builder
	cmd.Stderr = &said
	if err := b.node.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	killed := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer killed.Stop()
	if err := cmd.Wait(); err == nil || said.Len() > 0 {
		t.Errorf("the process ended by itself: %v: %s", err, said.String())
	}
}
