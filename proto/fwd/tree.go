package fwd

import (
	"cmp"
	"iter"
	"slices"
)

const (
	leafSize  = 48 // items in a leaf before it splits
	fanBits   = 4
	fan       = 1 << fanBits
	hashBits  = 64
	maxHeight = hashBits / fanBits
)

// tree is a persistent ordered map: a radix tree over 64-bit hashes whose leaves hold up to leafSize items, and more only
// where the hash has no bits left. Copies share what is equal; walking goes in the order of hash, then key. Every node
// carries the sum of the items below, so that the digest of a bucket (a hash prefix) is one look-up.
//
// A tree is changed through an edit: nodes that the edit made are changed in place, all others are copied first.
type tree[K cmp.Ordered, V comparable] struct {
	root *node[K, V]
	n    int
}

type item[K cmp.Ordered, V comparable] struct {
	hash, sum uint64
	key       K
	value     V
}

type node[K cmp.Ordered, V comparable] struct {
	owner *edit
	sum   uint64
	kids  *[fan]*node[K, V] // nil in a leaf
	items []item[K, V]      // leaf: sorted by hash, then key
}

// edit is a token of ownership; it must not be empty, or all edits could share one address.
type edit struct{ _ byte }

func (it item[K, V]) compare(hash uint64, key K) int {
	if c := cmp.Compare(it.hash, hash); c != 0 {
		return c
	}
	return cmp.Compare(it.key, key)
}

func slot(hash uint64, depth int) int {
	return int(hash >> (hashBits - fanBits*(depth+1)) & (fan - 1))
}

func (n *node[K, V]) find(hash uint64, key K) (int, bool) {
	return slices.BinarySearchFunc(n.items, key, func(it item[K, V], key K) int { return it.compare(hash, key) })
}

// get returns the item of a key.
func (t tree[K, V]) get(hash uint64, key K) (item[K, V], bool) {
	n := t.root
	for depth := 0; n != nil; depth++ {
		if n.kids == nil {
			i, ok := n.find(hash, key)
			if !ok {
				break
			}
			return n.items[i], true
		}
		n = n.kids[slot(hash, depth)]
	}
	return item[K, V]{}, false
}

// put adds an item or replaces the one with its key.
func (t *tree[K, V]) put(e *edit, it item[K, V]) {
	root, old := t.root.put(e, it, 0)
	t.root = root
	if !old {
		t.n++
	}
}

// remove removes a key and says whether it was there.
func (t *tree[K, V]) remove(e *edit, hash uint64, key K) bool {
	it, ok := t.get(hash, key)
	if !ok {
		return false
	}
	t.root = t.root.remove(e, it, 0)
	t.n--
	return true
}

// own returns n, or a copy of it, that e may change.
func (n *node[K, V]) own(e *edit) *node[K, V] {
	switch {
	case n == nil:
		return &node[K, V]{owner: e}
	case n.owner == e:
		return n
	}
	c := &node[K, V]{owner: e, sum: n.sum}
	if n.kids != nil {
		kids := *n.kids
		c.kids = &kids
		return c
	}
	c.items = append(make([]item[K, V], 0, len(n.items)+1), n.items...)
	return c
}

func (n *node[K, V]) put(e *edit, it item[K, V], depth int) (_ *node[K, V], replaced bool) {
	n = n.own(e)
	if n.kids != nil {
		kid := &n.kids[slot(it.hash, depth)]
		before := (*kid).total()
		*kid, replaced = (*kid).put(e, it, depth+1)
		n.sum += (*kid).total() - before
		return n, replaced
	}
	i, replaced := n.find(it.hash, it.key)
	if replaced {
		n.sum -= n.items[i].sum
		n.items[i] = it
	} else {
		n.items = insert(n.items, i, it)
	}
	n.sum += it.sum
	if len(n.items) > leafSize && depth < maxHeight {
		n.split(e, depth)
	}
	return n, replaced
}

// insert is slices.Insert that leaves room for one more item and not for as many again: leaves are many, and most never
// grow after the first table.
func insert[T any](items []T, i int, it T) []T {
	if len(items) == cap(items) {
		items = append(make([]T, 0, len(items)+2), items...)
	}
	return slices.Insert(items, i, it)
}

// fill makes an empty tree hold items, as putting them one after another would; but each node is made once, of the size that
// it needs. Nodes that were outgrown while a whole table came would leave holes in the heap between those that stay.
func (t *tree[K, V]) fill(e *edit, items []item[K, V]) {
	slices.SortStableFunc(items, func(a, b item[K, V]) int { return a.compare(b.hash, b.key) })
	n := 0
	for i, it := range items {
		if i+1 < len(items) && it.compare(items[i+1].hash, items[i+1].key) == 0 {
			continue // the next one replaces it
		}
		items[n] = it
		n++
	}
	t.root, t.n = build(e, items[:n], 0), n
}

// compact makes the tree anew, as fill makes it.
func (t *tree[K, V]) compact(e *edit) {
	t.fill(e, slices.AppendSeq(make([]item[K, V], 0, t.n), t.all()))
}

// build makes a node of items in order.
func build[K cmp.Ordered, V comparable](e *edit, items []item[K, V], depth int) *node[K, V] {
	if len(items) == 0 {
		return nil
	}
	n := &node[K, V]{owner: e}
	for _, it := range items {
		n.sum += it.sum
	}
	if len(items) <= leafSize || depth == maxHeight {
		n.items = slices.Clone(items)
		return n
	}
	n.kids = new([fan]*node[K, V])
	for len(items) > 0 {
		s, end := slot(items[0].hash, depth), 1
		for end < len(items) && slot(items[end].hash, depth) == s {
			end++
		}
		n.kids[s] = build(e, items[:end], depth+1)
		items = items[end:]
	}
	return n
}

// split turns a leaf into an inner node.
func (n *node[K, V]) split(e *edit, depth int) {
	items := n.items
	n.items, n.kids = nil, new([fan]*node[K, V])
	for _, it := range items {
		kid := &n.kids[slot(it.hash, depth)]
		*kid, _ = (*kid).put(e, it, depth+1)
	}
}

func (n *node[K, V]) remove(e *edit, it item[K, V], depth int) *node[K, V] {
	n = n.own(e)
	n.sum -= it.sum
	if n.kids == nil {
		i, _ := n.find(it.hash, it.key)
		n.items = slices.Delete(n.items, i, i+1)
		if len(n.items) == 0 {
			return nil
		}
		return n
	}
	s := slot(it.hash, depth)
	n.kids[s] = n.kids[s].remove(e, it, depth+1)
	for _, kid := range n.kids {
		if kid != nil {
			return n
		}
	}
	return nil
}

// all yields the items in order.
func (t tree[K, V]) all() iter.Seq[item[K, V]] {
	return func(yield func(item[K, V]) bool) { t.root.walk(yield) }
}

func (n *node[K, V]) walk(yield func(item[K, V]) bool) bool {
	if n == nil {
		return true
	}
	for _, it := range n.items {
		if !yield(it) {
			return false
		}
	}
	if n.kids != nil {
		for _, kid := range n.kids {
			if !kid.walk(yield) {
				return false
			}
		}
	}
	return true
}

// diff calls gone for items of a that b lacks, and came for items of b that a lacks or holds with another value. Subtrees
// that a and b share are not visited, so it costs what differs.
func diff[K cmp.Ordered, V comparable](a, b *node[K, V], gone, came func(item[K, V])) {
	switch {
	case a == b:
	case a != nil && b != nil && a.kids != nil && b.kids != nil:
		for i := range fan {
			diff(a.kids[i], b.kids[i], gone, came)
		}
	default:
		merge(slices.Collect(tree[K, V]{root: a}.all()), slices.Collect(tree[K, V]{root: b}.all()), gone, came)
	}
}

// merge compares two sorted runs of items.
func merge[K cmp.Ordered, V comparable](a, b []item[K, V], gone, came func(item[K, V])) {
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].compare(b[0].hash, b[0].key); {
		case c < 0:
			gone(a[0])
			a = a[1:]
		case c > 0:
			came(b[0])
			b = b[1:]
		default:
			if a[0].value != b[0].value {
				came(b[0])
			}
			a, b = a[1:], b[1:]
		}
	}
	for _, it := range a {
		gone(it)
	}
	for _, it := range b {
		came(it)
	}
}

func (n *node[K, V]) total() uint64 {
	if n == nil {
		return 0
	}
	return n.sum
}
