package fwd_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestDecodeEncode holds decode(encode(x)) = x for every kind of row.
func TestDecodeEncode(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 3000 {
		s := fwd.Scopes()[rng.IntN(3)]
		r := randomRow(rng, s)
		it, err := fwd.Decode(s, r)
		if err != nil {
			t.Fatal(err)
		}
		if it.Known() && encode(it) != r {
			t.Fatalf("%+v encodes to %x, was %x", it, encode(it), r)
		}
	}
}

func encode(it fwd.Item) fwd.Row {
	switch {
	case it.Port != nil:
		return fwd.EncodePort(*it.Port)
	case it.Backend != nil:
		return fwd.EncodeBackend(it.ID, *it.Backend)
	case it.Node != nil:
		return fwd.EncodeNode(*it.Node)
	default:
		return fwd.EncodeCluster(*it.Cluster)
	}
}

// TestTextRoundTrip holds parse(write(t)) = t for what the typed view shows.
func TestTextRoundTrip(t *testing.T) {
	for seed := range uint64(100) {
		w := newWorld()
		w.mutate(rand.New(rand.NewPCG(seed, 5)), 200)
		want := text(t, mustTable(t, w))
		got, err := fwd.ParseText(strings.NewReader(want))
		if err != nil {
			t.Fatalf("seed %d: %v in\n%s", seed, err, want)
		}
		if text(t, got) != want {
			t.Fatalf("seed %d:\n%s\nwant\n%s", seed, text(t, got), want)
		}
	}
}

func FuzzParseText(f *testing.F) {
	f.Add("node-facts deleting\nservice a/b:c/TCP/IPv4 cluster-ip=10.0.0.1 port=80\n  zone 10.0.0.2:80 kept\n")
	f.Fuzz(func(t *testing.T, s string) {
		table, err := fwd.ParseText(strings.NewReader(s))
		if err != nil {
			return
		}
		again, err := fwd.ParseText(strings.NewReader(text(t, table)))
		if err != nil {
			t.Fatalf("%v in what was written for %q:\n%s", err, s, text(t, table))
		}
		if text(t, again) != text(t, table) {
			t.Fatal("text changes when it is read and written")
		}
	})
}

// FuzzApply feeds arbitrary messages to a table: no crash, and an error leaves the table as it was.
func FuzzApply(f *testing.F) {
	w := newWorld()
	w.mutate(rand.New(rand.NewPCG(9, 9)), 60)
	base, err := fwd.NewTable(w.parts())
	if err != nil {
		f.Fatal(err)
	}
	w.mutate(rand.New(rand.NewPCG(9, 10)), 30)
	next, err := fwd.NewTable(w.parts())
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range fwd.Scopes() {
		c := fwd.DiffParts(base.Part(s), next.Part(s))
		b, err := proto.Marshal(&fairleadv1.Revision{Common: c.Proto(), Zone: c.Proto(), Node: c.Proto()})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	within := next.Part(fwd.Common).Within([]fwd.Bucket{2, 7, 12})
	b, err := proto.Marshal(&fairleadv1.Revision{Common: within.Proto()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	digest := base.Digest()
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(fairleadv1.Revision)
		if proto.Unmarshal(b, m) != nil {
			return
		}
		c := fwd.ChangeFromProto(m)
		for _, s := range fwd.Scopes() {
			if p := c.Parts[s]; p != nil { // a digest that agrees lets the fuzzer reach the decoders
				p.Digest = fitDigest(base.Part(s), *p)
			}
		}
		if table, _, err := base.Apply(c); err == nil {
			var buf bytes.Buffer
			if err := fwd.WriteText(&buf, table); err != nil {
				t.Fatal(err)
			}
		}
		if base.Digest() != digest {
			t.Fatal("the base table changed")
		}
	})
}

func fitDigest(p *fwd.Part, c fwd.PartChange) uint64 {
	if c.Replace {
		p = &fwd.Part{}
	}
	var dropped []string
	for r := range p.Rows() {
		if slices.ContainsFunc(c.Buckets, func(b fwd.Bucket) bool { return isIn(b, r.Key) }) {
			dropped = append(dropped, r.Key)
		}
	}
	return p.With(slices.Concat(dropped, c.Remove), c.Put).Digest()
}

// FuzzSums feeds arbitrary sums and questions: no crash, and what is sent for them is what a part lacks.
func FuzzSums(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	theirs, ours := opaque(rng, 700), opaque(rng, 700)
	f.Add(string(theirs.Sums(3)), uint32(3))
	f.Add(string(theirs.Sums(0)), uint32(14))
	f.Fuzz(func(t *testing.T, sums string, bits uint32) {
		width, ok := fwd.Sums(sums).Bits()
		differing := ours.Differing(fwd.Sums(sums))
		if !ok && differing != nil || len(differing) > 1<<max(width, 0) {
			t.Fatalf("%d buckets differ of %d bytes of sums", len(differing), len(sums))
		}
		if c := ours.Within(differing); ok && len(differing) == 1<<width && len(c.Put) != ours.Len() {
			t.Fatalf("all buckets have %d rows: want %d", len(c.Put), ours.Len())
		}
		table, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{fwd.Zone: theirs})
		if err != nil {
			t.Fatal(err)
		}
		a, err := table.Answer(&fairleadv1.Question{ZoneBits: bits})
		if (err != nil) != (bits > fwd.MaxBucketBits) || err == nil && len(a.GetZoneSums()) != fwd.SumsLen(int(bits)) {
			t.Fatalf("%d bits: %d bytes, %v", bits, len(a.GetZoneSums()), err)
		}
	})
}
