package nftables

import (
	"math"

	"golang.org/x/sys/unix"
)

// batchElements is how many elements one transaction has at most. More would save nothing: the kernel's work is by element.
const batchElements = 20000

// write sends an edit as transactions, in this order: what others lead to comes first, rules that packets get to come after
// the elements that they look up, and what goes comes last. A new table in place of another one is a single transaction. It stops at the first
// error.
func (e *edit) write(l *language, send func(*batch) error) error {
	w := batchWriter{batch: newBatch(l), language: l, send: send, limit: batchElements}
	if e.replaces {
		w.limit = math.MaxInt
		w.deleteTable()
	}
	if e.table {
		w.addTable(0)
	}
	e.writeObjects(w.batch)
	if e.table {
		// The kernel looks at each element of a map that a chain begins to look into; no packet gets to these chains yet.
		e.writeRules(w.batch, func(c Chain) bool { return c.Hook == nil })
	}
	for el := range byRank(e.add) {
		w.element(unix.NFT_MSG_NEWSETELEM, el)
	}
	for el := range byRank(e.replace) {
		w.element(unix.NFT_MSG_DELSETELEM, Element{Set: el.Set, Key: el.Key})
		w.element(unix.NFT_MSG_NEWSETELEM, el)
	}
	e.writeRules(w.batch, func(c Chain) bool { return !e.table || c.Hook != nil })
	w.flush()
	for _, el := range e.remove {
		w.element(unix.NFT_MSG_DELSETELEM, Element{Set: el.Set, Key: el.Key})
	}
	for _, name := range e.dropChains {
		w.flushChain(name)
	}
	for _, name := range e.dropChains {
		w.deleteChain(name)
	}
	for _, name := range e.dropSets {
		w.deleteSet(name)
	}
	w.flush()
	return w.err
}

// writeObjects writes new sets, and new chains without rules.
func (e *edit) writeObjects(b *batch) {
	for _, s := range e.addSets {
		b.addSet(s)
	}
	for _, c := range e.addChains {
		if e.fresh[c.Name] {
			b.addChain(c)
		}
	}
}

// writeRules writes the rules of some chains.
func (e *edit) writeRules(b *batch, of func(Chain) bool) {
	for _, c := range e.addChains {
		if !of(c) {
			continue
		}
		if !e.fresh[c.Name] {
			b.flushChain(c.Name)
		}
		for _, r := range c.Rules {
			b.addRule(c.Name, r)
		}
	}
}

// batchWriter sends a batch when it is full.
type batchWriter struct {
	*batch
	language     *language
	send         func(*batch) error
	limit, count int
	err          error
}

// flush sends what there is, unless something went wrong before.
func (w *batchWriter) flush() {
	if w.err == nil && !w.empty() {
		w.err = w.send(w.batch)
	}
	w.batch, w.count = newBatch(w.language), 0
}

// element writes one element; a removal and the addition that replaces it stay together.
func (w *batchWriter) element(op uint16, e Element) {
	if w.count >= w.limit && op == w.open.op {
		w.flush()
	}
	w.count++
	w.batch.element(op, e)
}
