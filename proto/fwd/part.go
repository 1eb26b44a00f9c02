package fwd

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// MaxKey is the longest key, in bytes.
const MaxKey = 255

// Row is an encoded row: a key and a value as sent. Comparable; equal rows have equal sums.
type Row struct{ Key, Value string }

// Sum is what the row adds to its part's digest.
func (r Row) Sum() uint64 {
	b := make([]byte, 0, 64)
	b = append(b, byte(len(r.Key)))
	b = append(b, r.Key...)
	b = append(b, r.Value...)
	h := sha256.Sum256(b)
	return binary.BigEndian.Uint64(h[:8])
}

// keyHash places a key in a part, evenly.
func keyHash(key string) uint64 {
	h := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint64(h[:8])
}

// Part is an immutable set of rows with unique keys and a digest. The zero value is empty and ready for use. Parts that
// came from one another by Apply share what is equal.
type Part struct{ rows tree[string, string] }

// Len is the number of rows.
func (p *Part) Len() int { return p.rows.n }

// Digest is the sum of the rows' sums modulo 2^64; 0 for an empty part.
func (p *Part) Digest() uint64 { return p.rows.root.total() }

// Get returns the row of a key.
func (p *Part) Get(key string) (Row, bool) {
	it, ok := p.rows.get(keyHash(key), key)
	return Row{Key: it.key, Value: it.value}, ok
}

// Rows yields all rows, in an order that depends on the rows alone (that of their keys' hashes).
func (p *Part) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for it := range p.rows.all() {
			if !yield(Row{Key: it.key, Value: it.value}) {
				return
			}
		}
	}
}

// PartChange is a difference between two states of a part. Remove and Put are sorted by key and name each key once.
type PartChange struct {
	// Replace drops every row first; Remove is empty then.
	Replace bool
	// Buckets, ascending, are emptied first; never with Replace.
	Buckets []Bucket
	Remove  []string
	Put     []Row
	// Digest of the part after the change.
	Digest uint64
}

// Empty reports whether the change does nothing.
func (c *PartChange) Empty() bool {
	return c == nil || !c.Replace && len(c.Buckets) == 0 && len(c.Remove) == 0 && len(c.Put) == 0
}

// Errors of Apply.
var (
	// ErrDigest: after the change, the digest is not the one that the change announces.
	ErrDigest = errors.New("digest mismatch")
	// ErrMalformed: bytes that the specification does not allow.
	ErrMalformed = errors.New("malformed")
)

// DiffParts returns the change that turns a into b: DiffParts(a, b) applied to a has b's rows and digest. It costs what
// differs if b came from a.
func DiffParts(a, b *Part) PartChange {
	c := PartChange{Digest: b.Digest()}
	diff(a.rows.root, b.rows.root,
		func(it item[string, string]) { c.Remove = append(c.Remove, it.key) },
		func(it item[string, string]) { c.Put = append(c.Put, Row{Key: it.key, Value: it.value}) })
	slices.Sort(c.Remove)
	slices.SortFunc(c.Put, compareRows)
	return c
}

// Snapshot returns the change that makes any part equal to p.
func (p *Part) Snapshot() PartChange {
	return PartChange{Replace: true, Put: slices.SortedFunc(p.Rows(), compareRows), Digest: p.Digest()}
}

// Apply returns p after the change. It fails, and changes nothing, with ErrDigest when the digest differs and with
// ErrMalformed for a key that is empty, too long, or removed without being held, and for buckets that are none or not in order.
func (p *Part) Apply(c PartChange) (*Part, error) {
	next, err := p.edited(c)
	if err != nil {
		return nil, err
	}
	if next.Digest() != c.Digest {
		return nil, fmt.Errorf("%w: have %016x, want %016x", ErrDigest, next.Digest(), c.Digest)
	}
	return next, nil
}

// With returns p with rows removed and put, without a digest to agree with: for authors of parts. Removing a key that is
// not held is no error.
func (p *Part) With(remove []string, put []Row) *Part {
	e, next := new(edit), &Part{rows: p.rows}
	for _, key := range remove {
		next.rows.remove(e, keyHash(key), key)
	}
	for _, r := range put {
		next.rows.put(e, rowItem(r))
	}
	return next
}

func (p *Part) edited(c PartChange) (*Part, error) {
	for _, r := range c.Put {
		if len(r.Key) == 0 || len(r.Key) > MaxKey {
			return nil, fmt.Errorf("%w: key of %d bytes: want 1 to %d", ErrMalformed, len(r.Key), MaxKey)
		}
	}
	if err := checkBuckets(c); err != nil {
		return nil, err
	}
	e, next := new(edit), &Part{rows: p.rows}
	if c.Replace {
		next = &Part{}
	}
	next.empty(e, c)
	for _, key := range c.Remove {
		if !next.rows.remove(e, keyHash(key), key) {
			return nil, fmt.Errorf("%w: remove %x: no such row", ErrMalformed, key)
		}
	}
	if c.Replace {
		items := make([]item[string, string], 0, len(c.Put))
		for _, r := range c.Put {
			items = append(items, rowItem(r))
		}
		next.rows.fill(e, items)
		return next, nil
	}
	for _, r := range c.Put {
		it := rowItem(r)
		if old, held := next.rows.get(it.hash, it.key); held && old.value == it.value {
			continue // most rows of a bucket are as they were: both parts go on sharing them
		}
		next.rows.put(e, it)
	}
	return next, nil
}

// empty drops the rows of the change's buckets, but for those that are put again.
func (p *Part) empty(e *edit, c PartChange) {
	if len(c.Buckets) == 0 {
		return
	}
	stay := make(map[string]struct{}, len(c.Put))
	for _, r := range c.Put {
		stay[r.Key] = struct{}{}
	}
	for _, b := range c.Buckets {
		var gone []item[string, string]
		p.rows.root.within(b, 0, func(it item[string, string]) {
			if _, again := stay[it.key]; !again {
				gone = append(gone, it)
			}
		})
		for _, it := range gone {
			p.rows.remove(e, it.hash, it.key)
		}
	}
}

func checkBuckets(c PartChange) error {
	for i, b := range c.Buckets {
		switch {
		case c.Replace:
			return fmt.Errorf("%w: %d buckets of a part that is replaced: want none", ErrMalformed, len(c.Buckets))
		case b == 0 || i > 0 && b <= c.Buckets[i-1]:
			return fmt.Errorf("%w: bucket %d in place %d: want ascending numbers from 1 on", ErrMalformed, b, i)
		}
	}
	return nil
}

func rowItem(r Row) item[string, string] {
	return item[string, string]{hash: keyHash(r.Key), sum: r.Sum(), key: r.Key, value: r.Value}
}

func compareRows(a, b Row) int { return strings.Compare(a.Key, b.Key) }

// Append adds what the next message of the same revision says of the part: Replace of the first and Digest of the last message
// count.
func (c *PartChange) Append(next *PartChange) {
	c.Buckets = append(c.Buckets, next.Buckets...)
	c.Remove = append(c.Remove, next.Remove...)
	c.Put = append(c.Put, next.Put...)
	c.Digest = next.Digest
}

// Proto converts the change to its message.
func (c *PartChange) Proto() *fairleadv1.Part {
	m := &fairleadv1.Part{Replace: c.Replace, Digest: c.Digest}
	for _, b := range c.Buckets {
		m.ReplaceBuckets = append(m.ReplaceBuckets, uint32(b))
	}
	for _, key := range c.Remove {
		m.Remove = append(m.Remove, []byte(key))
	}
	for _, r := range c.Put {
		m.Put = append(m.Put, &fairleadv1.Row{Key: []byte(r.Key), Value: []byte(r.Value)})
	}
	return m
}

// PartChangeFromProto converts a message; nil stays nil.
func PartChangeFromProto(m *fairleadv1.Part) *PartChange {
	if m == nil {
		return nil
	}
	c := &PartChange{Replace: m.GetReplace(), Digest: m.GetDigest()}
	for _, b := range m.GetReplaceBuckets() {
		c.Buckets = append(c.Buckets, Bucket(b))
	}
	for _, key := range m.GetRemove() {
		c.Remove = append(c.Remove, string(key))
	}
	for _, r := range m.GetPut() {
		c.Put = append(c.Put, Row{Key: string(r.GetKey()), Value: string(r.GetValue())})
	}
	return c
}
