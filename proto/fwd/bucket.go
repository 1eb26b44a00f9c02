package fwd

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Bounds of a division into buckets.
const (
	// MaxBucketBits is the finest division that may be asked for: 8,192 buckets, whose sums take 32 KiB.
	MaxBucketBits = 13
	// sumBytes is what the sum of a bucket takes in Sums.
	sumBytes = 4
	// wholeRows is the size below which a part is sent whole rather than compared.
	wholeRows = 256
	// bucketRows is how many rows a bucket should have at most, as far as MaxBucketBits allows it: a row that differs costs
	// that many, and each bucket costs sumBytes.
	bucketRows = 32
)

// Bucket names those rows of a part whose keys' hashes begin with the same bits: it is a 1 bit followed by these, so that 1
// is the whole part. 0 is none.
type Bucket uint32

// bits is how many bits of the hash the bucket fixes.
func (b Bucket) bits() int { return bits.Len32(uint32(b)) - 1 }

// has reports whether a row is in the bucket, by its key's hash.
func (b Bucket) has(hash uint64) bool { return hash>>(hashBits-b.bits()) == uint64(b)&^(1<<b.bits()) }

// slots are the children, from the first to before the last, that can hold rows of b, of a tree's node at a depth that can
// itself.
func (b Bucket) slots(depth int) (from, to int) {
	open := b.bits() - fanBits*depth // bits that are decided here and below
	switch {
	case open <= 0:
		return 0, fan
	case open >= fanBits:
		from = int(b>>(open-fanBits)) & (fan - 1)
		return from, from + 1
	}
	from = int(b) & (1<<open - 1) << (fanBits - open)
	return from, from + 1<<(fanBits-open)
}

// BucketBits is by how many bits a part of so many rows is divided to be compared; 0 if that is not worth it.
func BucketBits(rows int) int {
	if rows < wholeRows {
		return 0
	}
	return min(bits.Len(uint(rows-1)/bucketRows), MaxBucketBits) //nolint:gosec // rows is positive
}

// Sums are the digests of all buckets of one division of a part, in the order of the buckets: sums of rows modulo 2^32, in 4
// bytes (big endian). Empty is no division.
type Sums string

// SumsLen is the length in bytes of the Sums of a part that is divided by so many bits; of 0, which asks for none, it is 0.
func SumsLen(width int) int {
	if width == 0 {
		return 0
	}
	return sumBytes << width
}

// Bits is by how many bits the part is divided; ok is false for a length that no division has, from 0 bits to MaxBucketBits.
func (s Sums) Bits() (width int, ok bool) {
	width = bits.Len(uint(len(s)/sumBytes)) - 1
	return width, width >= 0 && width <= MaxBucketBits && len(s) == sumBytes<<width
}

// Sums returns the digests of the buckets that so many bits give, from 0 to MaxBucketBits.
func (p *Part) Sums(width int) Sums {
	sums := make([]uint32, 1<<width)
	p.rows.root.tally(sums, width, place{})
	b := make([]byte, 0, sumBytes<<width)
	for _, sum := range sums {
		b = binary.BigEndian.AppendUint32(b, sum)
	}
	return Sums(b)
}

// Differing returns the buckets, ascending, in which p differs from the part that has these sums; but for one in 2^32. None
// where sums are of no division.
func (p *Part) Differing(theirs Sums) []Bucket {
	width, ok := theirs.Bits()
	if !ok {
		return nil
	}
	var differ []Bucket
	ours := p.Sums(width)
	for i := range 1 << width {
		if at := i * sumBytes; ours[at:at+sumBytes] != theirs[at:at+sumBytes] {
			differ = append(differ, Bucket(1<<width|i)) //nolint:gosec // of at most 14 bits
		}
	}
	return differ
}

// Within returns the change that makes any part equal to p which does not differ outside of these buckets.
func (p *Part) Within(buckets []Bucket) PartChange {
	c := PartChange{Buckets: buckets, Digest: p.Digest()}
	for _, b := range buckets {
		p.rows.root.within(b, 0, func(it item[string, string]) { c.Put = append(c.Put, Row{Key: it.key, Value: it.value}) })
	}
	slices.SortFunc(c.Put, compareRows)
	return c
}

// Answer is what a follower that holds t answers to a Question. It fails with ErrMalformed.
func (t *Table) Answer(q *fairleadv1.Question) (*fairleadv1.Answer, error) {
	return AnswerOf(map[Scope]*Part{Common: t.Part(Common), Zone: t.Part(Zone), Node: t.Part(Node)}, q)
}

// AnswerOf is the same for parts by themselves; those that are missing are empty.
func AnswerOf(parts map[Scope]*Part, q *fairleadv1.Question) (*fairleadv1.Answer, error) {
	a := &fairleadv1.Answer{}
	for _, asked := range []struct {
		scope Scope
		bits  uint32
		sums  *[]byte
	}{
		{Common, q.GetCommonBits(), &a.CommonSums}, {Zone, q.GetZoneBits(), &a.ZoneSums}, {Node, q.GetNodeBits(), &a.NodeSums},
	} {
		part := parts[asked.scope]
		switch {
		case asked.bits > MaxBucketBits:
			return nil, fmt.Errorf("%w: question.%v_bits: %d: want at most %d", ErrMalformed, asked.scope, asked.bits, MaxBucketBits)
		case asked.bits == 0:
			continue
		case part == nil:
			part = &Part{}
		}
		*asked.sums = []byte(part.Sums(int(asked.bits)))
	}
	return a, nil
}

// place is where a node is in its tree: its depth, and the bits of the hash that led there.
type place struct {
	depth int
	path  uint32
}

// tally adds the sums below a node to those of the buckets that so many bits give.
func (n *node[K, V]) tally(sums []uint32, width int, at place) {
	switch known := fanBits * at.depth; {
	case n == nil:
	case known >= width:
		sums[at.path>>(known-width)] += uint32(n.sum) //nolint:gosec // modulo 2^32
	case n.kids == nil:
		for _, it := range n.items {
			sums[it.hash>>(hashBits-width)] += uint32(it.sum) //nolint:gosec // modulo 2^32
		}
	default:
		for i, kid := range n.kids {
			kid.tally(sums, width, place{at.depth + 1, at.path<<fanBits | uint32(i)}) //nolint:gosec // 0 to 15
		}
	}
}

// within calls found for all items of a bucket, of a node that can hold some.
func (n *node[K, V]) within(b Bucket, depth int, found func(item[K, V])) {
	if n == nil {
		return
	}
	for _, it := range n.items {
		if b.has(it.hash) {
			found(it)
		}
	}
	if n.kids == nil {
		return
	}
	from, to := b.slots(depth)
	for _, kid := range n.kids[from:to] {
		kid.within(b, depth+1, found)
	}
}
