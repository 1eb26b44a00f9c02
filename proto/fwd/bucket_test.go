package fwd_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// opaque is a part of n rows that no version knows; parts of one size share some.
func opaque(rng *rand.Rand, n int) *fwd.Part {
	put := make([]fwd.Row, n)
	for i := range put {
		put[i] = fwd.Row{Key: fmt.Sprintf("\x63%d", rng.IntN(2*n)), Value: string(rune('a' + rng.IntN(2)))}
	}
	return (&fwd.Part{}).With(nil, put)
}

// bucketOf names the bucket of a key by the specification alone.
func bucketOf(key string, width int) fwd.Bucket {
	hash := sha256.Sum256([]byte(key))
	return fwd.Bucket((uint64(1)<<63 | binary.BigEndian.Uint64(hash[:8])>>1) >> (63 - width))
}

// isIn says whether a key is in a bucket, of whatever division.
func isIn(b fwd.Bucket, key string) bool {
	return b != 0 && bucketOf(key, bits.Len32(uint32(b))-1) == b
}

func content(p *fwd.Part) map[string]string {
	rows := map[string]string{}
	for r := range p.Rows() {
		rows[r.Key] = r.Value
	}
	return rows
}

// TestBuckets: for any two parts and any division, the sums are those of the rows that the specification names, the rows of
// the buckets that differ turn one part into the other, and no others are sent.
func TestBuckets(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for range 150 {
		width := rng.IntN(fwd.MaxBucketBits + 1)
		held := opaque(rng, rng.IntN(1+rng.IntN(3000)))
		there := held
		switch rng.IntN(3) {
		case 0:
			there = opaque(rng, rng.IntN(2000))
		case 1:
			some := opaque(rng, rng.IntN(20))
			there = held.With(slices.Collect(maps.Keys(content(opaque(rng, 1+rng.IntN(20))))), slices.Collect(some.Rows()))
		}
		sums := held.Sums(width)
		if got, ok := sums.Bits(); !ok || got != width || len(sums) != 4<<width {
			t.Fatalf("%d bytes for %d bits", len(sums), width)
		}
		differing := there.Differing(sums)
		if want := bucketsApart(held, there, width); !slices.Equal(differing, want) {
			t.Fatalf("%d bits: buckets %v differ: want %v", width, differing, want)
		}
		change := there.Within(differing)
		after, err := held.Apply(change)
		if err != nil {
			t.Fatalf("%d bits, %d buckets: %v", width, len(differing), err)
		}
		if !maps.Equal(content(after), content(there)) || after.Len() != there.Len() || after.Sums(width) != there.Sums(width) {
			t.Fatalf("%d bits: %d rows, want %d", width, after.Len(), there.Len())
		}
		for _, r := range change.Put {
			if _, found := slices.BinarySearch(differing, bucketOf(r.Key, width)); !found {
				t.Fatalf("row %q is of no bucket that differs", r.Key)
			}
		}
	}
}

// bucketsApart are the buckets, ascending, with a row that only one of two parts has, or has so.
func bucketsApart(a, b *fwd.Part, width int) []fwd.Bucket {
	hit := map[fwd.Bucket]struct{}{}
	rowsA, rowsB := content(a), content(b)
	for _, some := range []map[string]string{rowsA, rowsB} {
		for key := range some {
			va, inA := rowsA[key]
			if vb, inB := rowsB[key]; inA != inB || va != vb {
				hit[bucketOf(key, width)] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(hit))
}

// TestSumsAreOfRows: they do not depend on how a part came about.
func TestSumsAreOfRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	p, q := opaque(rng, 3000), opaque(rng, 3000)
	var gone []string
	for r := range q.Rows() {
		if _, stays := p.Get(r.Key); !stays {
			gone = append(gone, r.Key)
		}
	}
	long := q
	for r := range p.Rows() {
		long = long.With(nil, []fwd.Row{r})
	}
	for _, key := range gone {
		long = long.With([]string{key}, nil)
	}
	whole, err := (&fwd.Part{}).Apply(p.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	for width := range fwd.MaxBucketBits + 1 {
		if long.Sums(width) != p.Sums(width) || whole.Sums(width) != p.Sums(width) {
			t.Errorf("%d bits: the sums of equal parts differ", width)
		}
	}
}

// TestOneRow: of 10,000 rows, one that differs costs a bucket; the answer that finds it is small beside the table.
func TestOneRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	held := opaque(rng, 15000)
	there := held.With(nil, []fwd.Row{{Key: "new", Value: "v"}})
	width := fwd.BucketBits(there.Len())
	change := there.Within(there.Differing(held.Sums(width)))
	if n := len(change.Put); len(change.Buckets) != 1 || n > 60 {
		t.Errorf("%d buckets, %d rows of %d", len(change.Buckets), n, there.Len())
	}
	if n := fwd.SumsLen(width); n > 2048 {
		t.Errorf("an answer of %d bytes", n)
	}
	for rows, want := range map[int]int{0: 0, 255: 0, 256: 3, 257: 4, 8192: 8, 8193: 9, 110_000: 12, 1 << 30: fwd.MaxBucketBits} {
		if got := fwd.BucketBits(rows); got != want {
			t.Errorf("%d rows: %d bits, want %d", rows, got, want)
		}
	}
}

// TestBucketMessages: buckets survive the wire, in one message and in several.
func TestBucketMessages(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 10))
	held, there := opaque(rng, 500), opaque(rng, 500)
	change := there.Within(there.Differing(held.Sums(3)))
	half := len(change.Put) / 2
	pieces := []fwd.PartChange{
		{Buckets: change.Buckets[:1]}, {Buckets: change.Buckets[1:], Put: change.Put[:half]}, {Put: change.Put[half:], Digest: change.Digest},
	}
	for name, all := range map[string][]fwd.PartChange{"one": {change}, "several": pieces} {
		var whole fwd.Change
		for _, p := range all {
			b, err := proto.Marshal(&fairleadv1.Revision{Node: p.Proto()})
			if err != nil {
				t.Fatal(err)
			}
			m := &fairleadv1.Revision{}
			if err := proto.Unmarshal(b, m); err != nil {
				t.Fatal(err)
			}
			whole.Append(fwd.ChangeFromProto(m))
		}
		after, err := held.Apply(*whole.Parts[fwd.Node])
		if err != nil || after.Digest() != there.Digest() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBadBuckets: what the specification does not allow is refused, and what does not add up found.
func TestBadBuckets(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	held := opaque(rng, 500)
	there := held.With(slices.Sorted(maps.Keys(content(held)))[:3], nil)
	good := there.Within(there.Differing(held.Sums(4)))
	for name, c := range map[string]struct {
		change func(*fwd.PartChange)
		want   error
	}{
		"none":         {func(c *fwd.PartChange) { c.Buckets = []fwd.Bucket{0} }, fwd.ErrMalformed},
		"twice":        {func(c *fwd.PartChange) { c.Buckets = append(c.Buckets, c.Buckets[len(c.Buckets)-1]) }, fwd.ErrMalformed},
		"not in order": {func(c *fwd.PartChange) { c.Buckets = append(c.Buckets, 1) }, fwd.ErrMalformed},
		"with replace": {func(c *fwd.PartChange) { c.Replace = true }, fwd.ErrMalformed},
		"one missing":  {func(c *fwd.PartChange) { c.Buckets = c.Buckets[1:] }, fwd.ErrDigest},
		"lost row":     {func(c *fwd.PartChange) { c.Put = c.Put[1:] }, fwd.ErrDigest},
		"a part, too":  {func(c *fwd.PartChange) { c.Buckets = append([]fwd.Bucket{1}, c.Buckets...) }, fwd.ErrDigest},
	} {
		bad := good
		bad.Buckets = slices.Clone(good.Buckets)
		c.change(&bad)
		if _, err := held.Apply(bad); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for _, n := range []int{1, 3, 5, 12, 4 << 14} {
		if _, ok := fwd.Sums(make([]byte, n)).Bits(); ok || there.Differing(fwd.Sums(make([]byte, n))) != nil {
			t.Errorf("%d bytes are taken for sums", n)
		}
	}
}
