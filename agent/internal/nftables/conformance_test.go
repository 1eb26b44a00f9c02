package nftables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/conformance"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness { return newNode(t).harness(t) })
}

// node is a network namespace with a backend, whose transactions can be made to fail.
type node struct {
	*lab.Namespace
	fault *fault
}

func newNode(t *testing.T) *node {
	t.Helper()
	ns, err := lab.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	return &node{ns, &fault{}}
}

func (n *node) harness(t *testing.T) conformance.Harness {
	return conformance.Harness{
		New:     func() dataplane.Interface { return n.open(t) },
		Dump:    func() string { return n.dump(t) },
		Fault:   n.fault.set,
		Foreign: n.nft(foreignRules),
		Edits: map[string]func() error{
			"flush ruleset":    n.nft("flush ruleset"),
			"delete table":     n.nft("delete table ip fairlead"),
			"dormant table":    n.nft("add table ip fairlead { flags dormant; }"),
			"flush a chain":    n.nft("flush chain ip fairlead services"),
			"flush all chains": n.nft("flush table ip6 fairlead"),
			"flush a set":      n.nft("flush set ip fairlead internal"),
			"flush a map":      n.nft("flush map ip fairlead endpoints"),
			"foreign rule":     n.nft("insert rule ip fairlead services ip saddr 10.9.9.9 accept"),
			"unknown rule":     n.nft("add rule ip fairlead pick counter"),
			"foreign chain":    n.nft("add chain ip fairlead what; add rule ip fairlead what jump services"),
			"foreign hook":     n.nft("add chain ip fairlead what { type filter hook input priority 0; }; add rule ip fairlead what drop"),
			"foreign set":      n.nft("add set ip fairlead what { type ipv4_addr; }; add element ip fairlead what { 10.0.0.1 }"),
			"foreign element":  n.nft("add element ip fairlead cluster-ips { 10.11.12.13 }"),
			"other policy":     n.nft("add chain ip fairlead prerouting { policy drop; }"),
			"other endpoint": n.nft("add element ip fairlead endpoints { 10.11.12.13 . tcp . 80 . 0 : 10.0.0.1 . 80 };" +
				"add element ip fairlead internal { 10.11.12.13 . tcp . 80 }"),
		},
	}
}

const foreignRules = `
table ip kube-proxy {
	chain services { ip daddr 10.96.0.1 return; }
	chain pre { type nat hook prerouting priority -100; jump services; }
}
table inet firewall {
	set what { type ipv4_addr; elements = { 10.1.1.1 }; }
	chain input { type filter hook input priority 0; ip saddr @what drop; }
}
`

func (n *node) open(t *testing.T) dataplane.Interface {
	t.Helper()
	c := Defaults()
	c.DetectLocal = dataplane.LocalNodeCIDR
	var b *Backend
	err := n.Do(func() error {
		s, err := openSocket()
		if err != nil {
			return err
		}
		b, err = newBackend(context.Background(), c, faultyKernel{s, n.fault})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n.Inside(b)
}

// nft runs a script.
func (n *node) nft(script string) func() error {
	return func() error {
		_, err := n.run(script, "-f", "-")
		return err
	}
}

func (n *node) run(input string, args ...string) (out []byte, err error) {
	var stdout, stderr bytes.Buffer
	err = n.Do(func() error {
		cmd := exec.Command("nft", args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
		return cmd.Run()
	})
	if err != nil || stderr.Len() > 0 {
		return nil, fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}

// dump prints the ruleset by the host's own tool: sorted, and without the slots of elements, since both depend on the past.
func (n *node) dump(t *testing.T) string {
	t.Helper()
	out, err := n.run("", "list", "ruleset")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(out, []byte("invalid")) {
		t.Fatalf("the ruleset does not list cleanly:\n%s", out)
	}
	elements := regexp.MustCompile(`(?s)elements = \{.*?\}`)
	slot := regexp.MustCompile(` \. \d+ : `)
	text := elements.ReplaceAllStringFunc(string(out), func(block string) string {
		list := strings.Split(strings.TrimSuffix(strings.TrimPrefix(block, "elements = {"), "}"), ",")
		for i, e := range list {
			list[i] = slot.ReplaceAllString(strings.TrimSpace(e), " : ")
		}
		slices.Sort(list)
		return "elements = {\n" + strings.Join(list, "\n") + "}"
	})
	var blocks []string
	for table := range strings.SplitSeq(text, "\n}\n") {
		name, rest, _ := strings.Cut(table, "\n")
		for block := range strings.SplitSeq(rest, "\n\n") {
			blocks = append(blocks, name+"\n"+block+"\n")
		}
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "")
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

type faultyKernel struct {
	kernel
	fault *fault
}

func (k faultyKernel) transact(b *batch) error {
	hit := k.fault.left.Add(-1) == 0
	if hit && !k.fault.late.Load() {
		return errFault
	}
	if err := k.kernel.transact(b); err != nil || !hit {
		return err
	}
	return errFault
}
