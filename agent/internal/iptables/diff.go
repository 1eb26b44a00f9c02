package iptables

import (
	"bytes"
	"cmp"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// held says what chains of ours the kernel has, by a hash of their rules.
type held map[chainKey]uint64

// written is a chain as text.
type written struct {
	chainKey
	rules []byte // lines of iptables-restore
	hash  uint64
}

// difference is what has to be written, in this order, and then removed.
type difference struct {
	write  []written
	remove []chainKey
}

func (d difference) empty() bool { return len(d.write)+len(d.remove) == 0 }

// diff compares chains that there should be, and names of chains that there should not be, with what the kernel has.
func diff(f fwd.Family, has held, want []Chain, gone []chainKey) difference {
	var d difference
	for _, c := range want {
		w := write(f, c)
		if hash, ok := has[c.chainKey]; !ok || hash != w.hash {
			d.write = append(d.write, w)
		}
	}
	for _, k := range gone {
		if _, ok := has[k]; ok {
			d.remove = append(d.remove, k)
		}
	}
	slices.SortFunc(d.remove, chainKey.compare)
	d.remove = slices.Compact(d.remove)
	return d
}

// others returns the chains that the kernel has besides those wanted.
func (h held) others(want []Chain) []chainKey {
	wanted := make(map[chainKey]bool, len(want))
	for _, c := range want {
		wanted[c.chainKey] = true
	}
	var others []chainKey
	for k := range h {
		if !wanted[k] {
			others = append(others, k)
		}
	}
	slices.SortFunc(others, chainKey.compare)
	return others
}

// realise notes that the kernel has taken the difference.
func (h held) realise(d difference) {
	for _, w := range d.write {
		h[w.chainKey] = w.hash
	}
	for _, k := range d.remove {
		delete(h, k)
	}
}

func write(f fwd.Family, c Chain) written {
	w := written{chainKey: c.chainKey}
	for _, r := range c.Rules {
		w.rules = append(append(w.rules, "-A "...), c.Name...)
		w.rules = append(appendRule(w.rules, f, r), '\n')
	}
	w.hash = hashRules(w.rules)
	return w
}

func hashRules(rules []byte) uint64 {
	h := fnv.New64a()
	h.Write(rules)
	return h.Sum64()
}

// pieces splits a difference into parts that can be written one after another: chains before those that lead to them,
// removals at the end, all in one part, since removed chains may lead to one another.
func (d difference) pieces(most int) []difference {
	var parts []difference
	for chunk := range slices.Chunk(d.write, most) {
		parts = append(parts, difference{write: chunk})
	}
	switch n := len(parts); {
	case len(d.remove) == 0:
	case n > 0 && len(parts[n-1].write)+len(d.remove) <= most:
		parts[n-1].remove = d.remove
	default:
		parts = append(parts, difference{remove: d.remove})
	}
	return parts
}

// restoreInput is the difference as input of iptables-restore --noflush: chains that it names are emptied first, all
// others stay as they are. Filter comes first, so that what loses its last endpoint is refused before it is no longer translated.
func (d difference) restoreInput() []byte {
	var b bytes.Buffer
	for _, table := range []string{filterTable, natTable} {
		var names, rules, removals bytes.Buffer
		for _, w := range d.write {
			if w.Table == table {
				declare(&names, w.Name)
				rules.Write(w.rules)
			}
		}
		for _, k := range d.remove {
			if k.Table == table {
				declare(&names, k.Name)
				removals.WriteString("-X " + k.Name + "\n")
			}
		}
		if names.Len() == 0 {
			continue
		}
		b.WriteString("*" + table + "\n")
		for _, part := range []*bytes.Buffer{&names, &rules, &removals} {
			b.Write(part.Bytes())
		}
		b.WriteString("COMMIT\n")
	}
	return b.Bytes()
}

// tables counts the tables that restoreInput names: each is a transaction.
func (d difference) tables() int {
	named := map[string]bool{}
	for _, w := range d.write {
		named[w.Table] = true
	}
	for _, k := range d.remove {
		named[k.Table] = true
	}
	return len(named)
}

// declare writes the line that makes a chain, or empties it; built-in chains need a policy.
func declare(b *bytes.Buffer, chain string) {
	policy := "-"
	if !strings.HasPrefix(chain, chainPrefix) {
		policy = "ACCEPT"
	}
	b.WriteString(":" + chain + " " + policy + " [0:0]\n")
}

// differences lists what the kernel has otherwise than expected.
func (h held) differences(expected held, object func(chainKey) string) []dataplane.Difference {
	var ps []dataplane.Difference
	for k, hash := range expected {
		switch now, ok := h[k]; {
		case !ok:
			ps = append(ps, dataplane.Difference{Object: object(k), Problem: "missing"})
		case now != hash:
			ps = append(ps, dataplane.Difference{Object: object(k), Problem: "changed"})
		}
	}
	for k := range h {
		if _, ok := expected[k]; !ok {
			ps = append(ps, dataplane.Difference{Object: object(k), Problem: "foreign"})
		}
	}
	slices.SortFunc(ps, func(a, b dataplane.Difference) int { return cmp.Compare(a.Object, b.Object) })
	return ps
}
