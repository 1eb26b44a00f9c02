package iptables

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

const (
	// fanBits is how many bits of the key one chain of a tree looks at: each has up to 4 rules, 2.5 of which a packet sees.
	fanBits = 2
	fan     = 1 << fanBits
	// leafKeys is how many keys a chain holds before it becomes an inner one. With 10,000 virtual IPs that gives 5 levels and
	// 10 addresses a leaf.
	leafKeys = 16
	// addrBits is how many of the low bits of an address the tree may use; those who differ only above share a leaf.
	addrBits = 64
	portBits = 16
)

// key is what a tree dispatches by: an address, or a port. The other field is zero.
type key struct {
	addr netip.Addr
	port uint16
}

func (k key) compare(o key) int {
	if c := k.addr.Compare(o.addr); c != 0 {
		return c
	}
	return cmp.Compare(k.port, o.port)
}

// path returns the key's bits in the order in which the tree looks at them, the first one lowest. Addresses start with
// their low bits: virtual IPs are taken one after another from a range, so these spread evenly and the high ones not at
// all. Ports start with the high bits, since iptables can match ranges of ports but not their bits.
func (k key) path() uint64 {
	if !k.addr.IsValid() {
		return uint64(bits.Reverse16(k.port))
	}
	a := k.addr.AsSlice()
	var low uint64
	for _, b := range a[max(0, len(a)-8):] {
		low = low<<8 | uint64(b)
	}
	return low
}

// tree holds for each key which Service ports have rules there. Its shape depends only on its keys.
type tree struct {
	name  string // of the root chain, and with a suffix of the others
	table string
	bits  int // 64 or less: as many as a path has
	root  branch
}

// branch is a leaf, with entries sorted by key, or has kids. It is a leaf iff it holds at most leafKeys keys, or the path
// has no bits left.
type branch struct {
	kids    *[fan]branch
	keys    int
	entries []treeEntry
}

type treeEntry struct {
	key key
	ids []fwd.ID // sorted
}

// crowded reports whether an address has so many Service ports that they get a chain of their own.
func (e treeEntry) crowded() bool { return len(e.ids) > leafKeys && e.key.addr.IsValid() }

// spot is a place in a tree: the first n bits of a path.
type spot struct {
	bits int
	path uint64
}

func (s spot) kid(i int) spot { return spot{s.bits + fanBits, s.path | uint64(i)<<s.bits} }

// chain names the chain of a spot.
func (t *tree) chain(s spot) string {
	if s.bits == 0 {
		return t.name
	}
	return fmt.Sprintf("%s-%d-%x", t.name, s.bits, s.path)
}

// crowdChain names the chain of a crowded address.
func (t *tree) crowdChain(k key) string { return t.name + "-" + shortHash(k.addr.String()) }

func slot(path uint64, depth int) int { return int(path >> depth & (fan - 1)) }

// add notes that the Service port has rules at the key.
func (t *tree) add(k key, id fwd.ID) { t.root.add(treeEntry{key: k, ids: []fwd.ID{id}}, 0, t.bits) }

// remove takes that back. Removing what is not there changes nothing.
func (t *tree) remove(k key, id fwd.ID) { t.root.remove(k, id, 0) }

// add puts the entry in, and says whether its key is new here.
func (b *branch) add(e treeEntry, depth, most int) bool {
	if b.kids != nil {
		added := b.kids[slot(e.key.path(), depth)].add(e, depth+fanBits, most)
		if added {
			b.keys++
		}
		return added
	}
	i, found := slices.BinarySearchFunc(b.entries, e.key, func(e treeEntry, k key) int { return e.key.compare(k) })
	if found {
		at := &b.entries[i]
		for _, id := range e.ids {
			if j, held := slices.BinarySearch(at.ids, id); !held {
				at.ids = slices.Insert(at.ids, j, id)
			}
		}
		return false
	}
	if len(b.entries) == cap(b.entries) {
		// Leaves are many and seldom grow after the first table: no room for twice as many.
		b.entries = append(make([]treeEntry, 0, len(b.entries)+2), b.entries...)
	}
	b.entries = slices.Insert(b.entries, i, e)
	b.keys++
	if b.keys > leafKeys && depth < most {
		entries := b.entries
		b.entries, b.kids = nil, new([fan]branch)
		for _, e := range entries {
			b.kids[slot(e.key.path(), depth)].add(e, depth+fanBits, most)
		}
	}
	return true
}

// compact makes all leaves of the size that they need: while a whole table is added, each outgrows its memory many times, which
// leaves holes between what stays.
func (b *branch) compact() {
	b.entries = slices.Clone(b.entries)
	if b.kids != nil {
		for i := range b.kids {
			b.kids[i].compact()
		}
	}
}

// remove takes an ID from a key, and says whether the key went with it.
func (b *branch) remove(k key, id fwd.ID, depth int) bool {
	if b.kids != nil {
		gone := b.kids[slot(k.path(), depth)].remove(k, id, depth+fanBits)
		if gone {
			b.keys--
		}
		if b.keys <= leafKeys {
			entries := slices.Collect(b.all)
			slices.SortFunc(entries, func(x, y treeEntry) int { return x.key.compare(y.key) })
			b.entries, b.kids = entries, nil
		}
		return gone
	}
	i, found := slices.BinarySearchFunc(b.entries, k, func(e treeEntry, k key) int { return e.key.compare(k) })
	if !found {
		return false
	}
	at := &b.entries[i]
	if j, held := slices.BinarySearch(at.ids, id); held {
		at.ids = slices.Delete(at.ids, j, j+1)
	}
	if len(at.ids) > 0 {
		return false
	}
	b.entries = slices.Delete(b.entries, i, i+1)
	b.keys--
	return true
}

func (b *branch) all(yield func(treeEntry) bool) {
	for _, e := range b.entries {
		if !yield(e) {
			return
		}
	}
	if b.kids != nil {
		for i := range b.kids {
			for e := range b.kids[i].all {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// limb is a branch and where it is.
type limb struct {
	*branch
	spot
}

// limbs returns the branches directly below that need a chain: spots with only one way to go on are passed over.
func (l limb) limbs() []limb {
	var below []limb
	for i := range fan {
		kid := limb{&l.kids[i], l.kid(i)}
		if kid.keys == 0 {
			continue
		}
		for only := kid.onlyKid(); only >= 0; only = kid.onlyKid() {
			kid = limb{&kid.kids[only], kid.kid(only)}
		}
		below = append(below, kid)
	}
	return below
}

// onlyKid returns the index of the only kid that holds anything; -1 in a leaf or with several.
func (b *branch) onlyKid() int {
	if b.kids == nil {
		return -1
	}
	only := -1
	for i := range b.kids {
		if b.kids[i].keys == 0 {
			continue
		}
		if only >= 0 {
			return -1
		}
		only = i
	}
	return only
}

// walk yields all chains of the tree: first those below, then the one above.
func (t *tree) walk(yield func(limb)) {
	if t.root.keys > 0 {
		walkLimb(limb{&t.root, spot{}}, yield)
	}
}

func walkLimb(l limb, yield func(limb)) {
	if l.kids != nil {
		for _, kid := range l.limbs() {
			walkLimb(kid, yield)
		}
	}
	yield(l)
}

// way returns the branches from the root down to the leaf where the key belongs; none in an empty tree.
func (t *tree) way(k key) []limb {
	if t.root.keys == 0 {
		return nil
	}
	l := limb{&t.root, spot{}}
	way := []limb{l}
	for l.kids != nil {
		i := slot(k.path(), l.bits)
		l = limb{&l.kids[i], l.kid(i)}
		way = append(way, l)
	}
	return way
}

// at returns what is known of a key.
func (t *tree) at(k key) (treeEntry, bool) {
	way := t.way(k)
	if len(way) == 0 {
		return treeEntry{}, false
	}
	entries := way[len(way)-1].entries
	i, found := slices.BinarySearchFunc(entries, k, func(e treeEntry, k key) int { return e.key.compare(k) })
	if !found {
		return treeEntry{}, false
	}
	return entries[i], true
}

// find returns the branch at a spot, if it needs a chain.
func (t *tree) find(s spot) (limb, bool) {
	l := limb{&t.root, spot{}}
	for l.spot != s {
		if l.kids == nil {
			return limb{}, false
		}
		i := slot(s.path, l.bits)
		l = limb{&l.kids[i], l.kid(i)}
	}
	return l, l.keys > 0 && (l.bits == 0 || l.onlyKid() < 0)
}

// match is the match of the rule that leads to a spot.
func (t *tree) match(f fwd.Family, proto fwd.Protocol, s spot) Rule {
	if t.bits == portBits {
		low := bits.Reverse16(uint16(s.path))
		return Rule{Protocol: proto, DPort: PortRange{low, low | uint16(1<<(portBits-s.bits)-1)}}
	}
	return Rule{Dst: AddrMatch{Addr: lowBits(f, s.path), Mask: lowBits(f, 1<<s.bits-1)}}
}

// lowBits is the address whose low 64 (or 32) bits are v and whose others are 0.
func lowBits(f fwd.Family, v uint64) netip.Addr {
	b := make([]byte, f.Bits()/8)
	for i := len(b) - 1; i >= 0 && v != 0; i-- {
		b[i] = byte(v)
		v >>= 8
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
