package fwd_test

import (
	"bytes"
	"math/rand/v2"
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
	digest := base.Digest()
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(fairleadv1.Revision)
		if proto.Unmarshal(b, m) != nil {
			return
		}
		c := fwd.ChangeFromProto(m)
		for _, s := range fwd.Scopes() {
			if p := c.Parts[s]; p != nil { // a digest that agrees lets the fuzzer reach the decoders
				if after, err := fitDigest(base.Part(s), *p); err == nil {
					p.Digest = after
				}
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

func fitDigest(p *fwd.Part, c fwd.PartChange) (uint64, error) {
	if c.Replace {
		p = &fwd.Part{}
	}
	return p.With(c.Remove, c.Put).Digest(), nil
}
