package nftables

import "golang.org/x/sys/unix"

// batchElements is how many elements one transaction has at most. More would save nothing: the kernel's work is by element.
const batchElements = 20000

// batches turns an edit into transactions, to be done in this order: what others lead to comes first, rules come after the
// elements that they look up, and what goes comes last. A new table in place of another one is a single transaction.
func (e *edit) batches(l *language) []*batch {
	w := batchWriter{language: l, limit: batchElements}
	if e.replaces {
		w.limit = 1 << 30
	}
	b := w.next()
	if e.replaces {
		b.deleteTable()
	}
	if e.table {
		b.addTable()
	}
	for _, s := range e.addSets {
		b.addSet(s)
	}
	for _, c := range e.addChains {
		if e.fresh[c.Name] {
			b.addChain(c)
		}
	}
	for _, el := range e.add {
		w.element(unix.NFT_MSG_NEWSETELEM, el)
	}
	for _, el := range e.replace {
		w.element(unix.NFT_MSG_DELSETELEM, Element{Set: el.Set, Key: el.Key})
		w.element(unix.NFT_MSG_NEWSETELEM, el)
	}
	b = w.current()
	for _, c := range e.addChains {
		if !e.fresh[c.Name] {
			b.flushChain(c.Name)
		}
		for _, r := range c.Rules {
			b.addRule(c.Name, r)
		}
	}
	w.goes(e)
	if last := w.current(); last.empty() {
		w.all = w.all[:len(w.all)-1]
	}
	return w.all
}

// goes writes what is to be removed, in transactions of their own.
func (w *batchWriter) goes(e *edit) {
	if len(e.remove)+len(e.dropChains)+len(e.dropSets) == 0 {
		return
	}
	if !w.current().empty() {
		w.next()
	}
	for _, el := range e.remove {
		w.element(unix.NFT_MSG_DELSETELEM, Element{Set: el.Set, Key: el.Key})
	}
	b := w.current()
	for _, name := range e.dropChains {
		b.flushChain(name)
	}
	for _, name := range e.dropChains {
		b.deleteChain(name)
	}
	for _, name := range e.dropSets {
		b.deleteSet(name)
	}
}

// batchWriter begins a new batch when one is full.
type batchWriter struct {
	*language
	all          []*batch
	limit, count int
}

func (w *batchWriter) current() *batch { return w.all[len(w.all)-1] }

func (w *batchWriter) next() *batch {
	w.all, w.count = append(w.all, newBatch(w.language)), 0
	return w.current()
}

// element writes one element; a removal and the addition that replaces it stay together.
func (w *batchWriter) element(op uint16, e Element) {
	if w.count >= w.limit && op == w.current().open.op && e.Set != "" {
		w.next()
	}
	w.count++
	w.current().element(op, e)
}
