package iptables

import (
	"bytes"
	"iter"
	"slices"
	"strings"

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
func diff(f fwd.Family, has held, want iter.Seq[Chain], gone []chainKey) difference {
	var d difference
	var text []byte
	for c := range want {
		text = appendChain(text[:0], f, c)
		hash := hashRules(emptyHash, text)
		if now, ok := has[c.chainKey]; !ok || now != hash {
			d.write = append(d.write, written{c.chainKey, bytes.Clone(text), hash})
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

// diffAll compares all chains that there should be with what the kernel has: what it has besides goes.
func diffAll(f fwd.Family, has held, want iter.Seq[Chain]) difference {
	wanted := map[chainKey]bool{}
	d := diff(f, has, func(yield func(Chain) bool) {
		for c := range want {
			wanted[c.chainKey] = true
			if !yield(c) {
				return
			}
		}
	}, nil)
	for k := range has {
		if !wanted[k] {
			d.remove = append(d.remove, k)
		}
	}
	slices.SortFunc(d.remove, chainKey.compare)
	return d
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

// touch notes all that a difference writes.
func (d difference) touch(touched map[chainKey]bool) {
	for _, w := range d.write {
		touched[w.chainKey] = true
	}
	for _, k := range d.remove {
		touched[k] = true
	}
}

// appendChain adds the rules of a chain as lines of iptables-restore.
func appendChain(b []byte, f fwd.Family, c Chain) []byte {
	for _, r := range c.Rules {
		b = append(append(b, "-A "...), c.Name...)
		b = append(appendRule(b, f, r), '\n')
	}
	return b
}

// emptyHash is that of a chain without rules.
const emptyHash = 14695981039346656037

// hashRules adds lines to a hash (FNV-1a, which goes on where it stopped).
func hashRules(hash uint64, lines []byte) uint64 {
	for _, c := range lines {
		hash = (hash ^ uint64(c)) * 1099511628211
	}
	return hash
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
	size := 0
	for _, w := range d.write {
		size += len(w.rules) + len(w.Name) + len(": ACCEPT [0:0]\n")
	}
	var b bytes.Buffer
	b.Grow(size + 100*len(d.remove) + 100)
	for _, table := range []string{filterTable, natTable} {
		d.restoreTable(&b, table)
	}
	return b.Bytes()
}

func (d difference) restoreTable(b *bytes.Buffer, table string) {
	if !d.names(table) {
		return
	}
	b.WriteString("*" + table + "\n")
	for _, w := range d.write {
		if w.Table == table {
			declare(b, w.Name)
		}
	}
	for _, k := range d.remove {
		if k.Table == table {
			declare(b, k.Name)
		}
	}
	for _, w := range d.write {
		if w.Table == table {
			b.Write(w.rules)
		}
	}
	for _, k := range d.remove {
		if k.Table == table {
			b.WriteString("-X " + k.Name + "\n")
		}
	}
	b.WriteString("COMMIT\n")
}

// names reports whether the difference says anything about a table.
func (d difference) names(table string) bool {
	return slices.ContainsFunc(d.write, func(w written) bool { return w.Table == table }) ||
		slices.ContainsFunc(d.remove, func(k chainKey) bool { return k.Table == table })
}

// tables counts the tables that restoreInput names: each is a transaction.
func (d difference) tables() int {
	n := 0
	for _, table := range []string{filterTable, natTable} {
		if d.names(table) {
			n++
		}
	}
	return n
}

// declare writes the line that makes a chain, or empties it; built-in chains need a policy.
func declare(b *bytes.Buffer, chain string) {
	policy := "-"
	if !strings.HasPrefix(chain, chainPrefix) {
		policy = "ACCEPT"
	}
	b.WriteString(":" + chain + " " + policy + " [0:0]\n")
}
