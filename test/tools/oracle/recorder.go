package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utiliptables "k8s.io/kubernetes/pkg/util/iptables"
	iptablestesting "k8s.io/kubernetes/pkg/util/iptables/testing"
)

// recorder is an iptables that keeps what it is given as text. It takes what it does not record from kube-proxy's fake,
// which parses every rule by reflection and would be most of the time.
type recorder struct {
	*iptablestesting.FakeIPTables
	// jumps are the rules of built-in chains by table, the last one first: kube-proxy prepends them.
	jumps map[utiliptables.Table][]string
	// ensured are the chains that were asked for, by table.
	ensured map[utiliptables.Table][]string
	// restored is what one restore brought.
	restored []byte
}

func newRecorder(family corev1.IPFamily) *recorder {
	fake := iptablestesting.NewFake()
	if family == corev1.IPv6Protocol {
		fake = iptablestesting.NewIPv6Fake()
	}
	return &recorder{FakeIPTables: fake.SetHasRandomFully(true), jumps: map[utiliptables.Table][]string{}, ensured: map[utiliptables.Table][]string{}}
}

// EnsureChain records a chain.
func (r *recorder) EnsureChain(table utiliptables.Table, chain utiliptables.Chain) (bool, error) {
	known := slices.Contains(r.ensured[table], string(chain))
	if !known {
		r.ensured[table] = append(r.ensured[table], string(chain))
	}
	return known, nil
}

// EnsureRule records a jump from a built-in chain.
func (r *recorder) EnsureRule(position utiliptables.RulePosition, table utiliptables.Table, chain utiliptables.Chain, args ...string) (bool, error) {
	if position != utiliptables.Prepend {
		return false, fmt.Errorf("record rule: position %s: only %s is known", position, utiliptables.Prepend)
	}
	for i, a := range args {
		if strings.Contains(a, " ") {
			args[i] = `"` + a + `"`
		}
	}
	r.jumps[table] = append([]string{fmt.Sprintf("-A %s %s", chain, strings.Join(args, " "))}, r.jumps[table]...)
	return false, nil
}

// SaveInto says that there is nothing yet.
func (*recorder) SaveInto(utiliptables.Table, *bytes.Buffer) error { return nil }

// RestoreAll records; a second restore would be a change of the first and is refused.
func (r *recorder) RestoreAll(data []byte, flush utiliptables.FlushFlag, _ utiliptables.RestoreCountersFlag) error {
	if r.restored != nil || flush != utiliptables.NoFlushTables {
		return errors.New("record restore: want one, without flush")
	}
	r.restored = bytes.Clone(data)
	return nil
}

// Monitor does nothing.
func (*recorder) Monitor(utiliptables.Chain, []utiliptables.Table, func(), time.Duration, <-chan struct{}) {
}

// save prints what iptables-save would print after all this: the restored text, with the built-in chains, the chains that
// were only ensured, and the jumps at each table's begin.
func (r *recorder) save() (string, error) {
	if r.restored == nil {
		return "", errors.New("the proxier wrote no rules")
	}
	builtin := map[string][]string{"nat": {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"}, "filter": {"INPUT", "FORWARD", "OUTPUT"}}
	var b strings.Builder
	for line := range strings.Lines(string(r.restored)) {
		b.WriteString(line)
		table, ok := strings.CutPrefix(strings.TrimSpace(line), "*")
		if !ok {
			continue
		}
		for _, chain := range builtin[table] {
			fmt.Fprintf(&b, ":%s ACCEPT [0:0]\n", chain)
		}
		for _, chain := range r.ensured[utiliptables.Table(table)] {
			if !bytes.Contains(r.restored, []byte(":"+chain+" ")) {
				fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
			}
		}
		for _, jump := range r.jumps[utiliptables.Table(table)] {
			fmt.Fprintln(&b, jump)
		}
	}
	return b.String(), nil
}
