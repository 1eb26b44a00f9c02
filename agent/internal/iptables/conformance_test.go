package iptables

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/conformance"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/proto/fwd"
)

func TestConformance(t *testing.T) {
	for _, flavor := range []Flavor{FlavorNFT, FlavorLegacy} {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, func(t *testing.T) conformance.Harness { return newKernel(t, flavor).harness(t) })
		})
	}
}

// TestFaultForgets holds that after a failed sync the next one looks at everything, whatever it is told.
func TestFaultForgets(t *testing.T) {
	k := newKernel(t, FlavorNFT)
	d, table := k.open(t), parseTable(t, webTable)
	sync(t, d, everything(table))
	more, changed, err := table.Apply(fwd.DiffTables(table, parseTable(t, webTable+manyServices(40))))
	if err != nil {
		t.Fatal(err)
	}
	want := newKernel(t, FlavorNFT)
	sync(t, want.open(t), everything(more))
	k.fault.set(1, true)
	if _, err := d.Sync(context.Background(), table, more, dataplane.Delta{Changed: changed}); err == nil {
		t.Fatal("the fault did not show")
	}
	if err := k.command("-t", "nat", "-F", servicesChain)(); err != nil {
		t.Fatal(err)
	}
	sync(t, d, step{table, more, dataplane.Delta{Changed: changed}})
	if got := k.dump(t); got != want.dump(t) {
		t.Errorf("after a fault:\n%s", got)
	}
}

// kernel is a network namespace with a backend, whose transactions can be made to fail.
type kernel struct {
	*lab.Namespace
	flavor Flavor
	fault  *fault
	// lacks is a match that this kernel refuses; "" is none.
	lacks string
}

func newKernel(t *testing.T, flavor Flavor) *kernel {
	t.Helper()
	ns, err := lab.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	return &kernel{Namespace: ns, flavor: flavor, fault: &fault{}}
}

func (k *kernel) harness(t *testing.T) conformance.Harness {
	return conformance.Harness{
		New:     func() dataplane.Interface { return k.open(t) },
		Dump:    func() string { return k.dump(t) },
		Fault:   k.fault.set,
		Foreign: func() error { return k.restore(foreignRules) },
		Edits: map[string]func() error{
			"flush nat":      k.command("-t", "nat", "-F"),
			"flush filter":   k.command("-t", "filter", "-F"),
			"lose an anchor": k.command("-t", "nat", "-D", "PREROUTING", "1"),
			"double anchor":  k.command("-t", "nat", "-A", "PREROUTING", "-j", servicesChain),
			"foreign chain":  k.command("-t", "nat", "-N", "FL-WHAT"),
			"foreign rule":   k.command("-t", "nat", "-I", servicesChain, "-s", "10.9.9.9", "-j", "ACCEPT"),
			"other verdict":  k.command("-t", "nat", "-R", servicesChain, "1", "-j", "RETURN"),
			"flush a chain":  k.command("-t", "filter", "-F", forwardChain),
		},
	}
}

const foreignRules = `*filter
:KUBE-FORWARD - [0:0]
:FLOWS - [0:0]
-A FORWARD -j KUBE-FORWARD
-A INPUT -s 10.1.1.1/32 -j FLOWS
-A FLOWS -j DROP
COMMIT
*nat
:KUBE-SERVICES - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.1/32 -j RETURN
COMMIT
*mangle
-A PREROUTING -s 10.1.1.1/32 -j ACCEPT
COMMIT
`

func (k *kernel) config() Config {
	c := Defaults()
	c.Flavor, c.DetectLocal = k.flavor, dataplane.LocalNodeCIDR
	c.ClusterCIDRs = []netip.Prefix{}
	return c
}

func (k *kernel) open(t *testing.T) dataplane.Interface {
	t.Helper()
	var b *Backend
	err := k.Do(func() (err error) {
		b, err = newBackend(context.Background(), k.config(), faultyRunner{refusingRunner{execRunner{}, k.lacks}, k.fault})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range b.families {
		f.ipt = faultyAnchorer{f.ipt, k.fault}
	}
	return k.Inside(b)
}

// programs returns the commands of both families.
func (k *kernel) programs() []commands {
	var cs []commands
	for _, f := range fwd.Families() {
		name := map[fwd.Family]string{fwd.IPv4: "iptables-", fwd.IPv6: "ip6tables-"}[f] + string(k.flavor)
		cs = append(cs, commands{k.flavor, f, name, name + "-restore", name + "-save"})
	}
	return cs
}

// command runs iptables for IPv4.
func (k *kernel) command(args ...string) func() error {
	return func() error {
		return k.Do(func() error {
			return execRunner{}.run(context.Background(), call{program: k.programs()[0].iptables, args: append([]string{"--wait"}, args...)})
		})
	}
}

func (k *kernel) restore(text string) error {
	return k.Do(func() error {
		for _, c := range k.programs() {
			if c.family == fwd.IPv4 {
				if err := c.write(context.Background(), execRunner{}, []byte(text)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// dump prints all chains with their rules, sorted by chain.
func (k *kernel) dump(t *testing.T) string {
	t.Helper()
	var blocks []string
	err := k.Do(func() error {
		for _, c := range k.programs() {
			for _, table := range []string{"filter", "nat", "mangle"} {
				out, err := output(context.Background(), execRunner{}, c.save, "-t", table)
				if err != nil {
					return err
				}
				blocks = append(blocks, chainBlocks(c.iptables+" "+table, out)...)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "")
}

func chainBlocks(prefix string, save []byte) []string {
	chains := map[string]string{}
	for line := range bytes.Lines(save) {
		text := strings.TrimSpace(string(line))
		switch {
		case strings.HasPrefix(text, ":"):
			name, rest, _ := strings.Cut(text[1:], " ")
			policy, _, _ := strings.Cut(rest, " ")
			chains[name] = prefix + " " + name + " " + policy + "\n" + chains[name]
		case strings.HasPrefix(text, "-A "):
			name, _, _ := strings.Cut(text[3:], " ")
			chains[name] += prefix + " " + text + "\n"
		}
	}
	var blocks []string
	for _, b := range chains {
		blocks = append(blocks, b)
	}
	return blocks
}

// fault counts transactions down to the one that fails.
type fault struct {
	left atomic.Int64
	late atomic.Bool
}

var errFault = errors.New("injected fault")

func (f *fault) set(n int, late bool) {
	f.late.Store(late)
	f.left.Store(int64(n))
}

func (f *fault) around(transaction func() error) error {
	hit := f.left.Add(-1) == 0
	if hit && !f.late.Load() {
		return errFault
	}
	if err := transaction(); err != nil || !hit {
		return err
	}
	return errFault
}

type faultyRunner struct {
	runner
	fault *fault
}

func (r faultyRunner) run(ctx context.Context, c call) error {
	if !strings.HasSuffix(c.program, "-restore") {
		return r.runner.run(ctx, c)
	}
	return r.fault.around(func() error { return r.runner.run(ctx, c) })
}

type faultyAnchorer struct {
	anchorer
	fault *fault
}

func (a faultyAnchorer) insert(k chainKey, spec []string) error {
	return a.fault.around(func() error { return a.anchorer.insert(k, spec) })
}

func (a faultyAnchorer) remove(k chainKey, position int) error {
	return a.fault.around(func() error { return a.anchorer.remove(k, position) })
}

// refusingRunner is a kernel without some match.
type refusingRunner struct {
	runner
	lacks string
}

func (r refusingRunner) run(ctx context.Context, c call) error {
	if r.lacks != "" && bytes.Contains(c.stdin, []byte(r.lacks)) {
		return &commandError{c.program, 4, "line 3: RULE_APPEND failed (No such file or directory)"}
	}
	return r.runner.run(ctx, c)
}
