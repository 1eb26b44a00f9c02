package client

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

func (k *call) ask(q *fairleadv1.Question) {
	k.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Question{Question: q}})
}

func (k *call) answer() *fairleadv1.Answer {
	k.t.Helper()
	select {
	case a := <-k.answers:
		return a
	case <-time.After(10 * time.Second):
		k.t.Fatal("no answer came")
		return nil
	}
}

// resumed answers as a controller that holds next, and returns the first revision.
func resumed(next *fwd.Table, a *fairleadv1.Answer) *fwd.Change {
	var c fwd.Change
	for scope, sums := range map[fwd.Scope][]byte{fwd.Common: a.GetCommonSums(), fwd.Zone: a.GetZoneSums(), fwd.Node: a.GetNodeSums()} {
		part := next.Part(scope)
		change := part.Within(part.Differing(fwd.Sums(sums)))
		c.Parts[scope] = &change
	}
	return &c
}

// TestQuestions: over streams that end at any moment, of controllers that know nothing of what is held, the agent's answers
// are about what its hello told of, and what it makes of the buckets is their table; touched is what differs, which the
// keeper checks.
func TestQuestions(t *testing.T) {
	ctl := newController(t)
	b := start(t, nil, ctl)
	rng := rand.New(rand.NewPCG(5, 5))
	held, content := &fwd.Table{}, rows{}
	for epoch := range uint64(20) {
		for range rng.IntN(30) {
			content.mutate(rng)
		}
		next := content.table(t)
		k := ctl.welcomed(t, epoch+1)
		if got := k.held(); held.Len() > 0 && (got != digests(held) || !k.hello.GetHeld().GetBuckets()) {
			t.Fatalf("held %v", k.hello.GetHeld())
		}
		q := &fairleadv1.Question{CommonBits: rng.Uint32N(14), ZoneBits: 1 + rng.Uint32N(13), NodeBits: 1 + rng.Uint32N(3)}
		if q.CommonBits == 0 {
			q.CommonBits = 13
		}
		k.ask(q)
		k.beat(0, 1) // between question and revision it only says that the stream lives
		a := k.answer()
		want, err := held.Answer(q)
		if err != nil || !proto.Equal(a, want) {
			t.Fatalf("answer of %d bytes, want %d (%v)", proto.Size(a), proto.Size(want), err)
		}
		messages := split(1, resumed(next, a), 1+rng.IntN(20))
		if rng.IntN(3) == 0 && len(messages) > 1 { // the stream ends within the revision, or before it
			k.revision(messages[:rng.IntN(len(messages)-1)]...)
			k.done <- status.Error(codes.Unavailable, "drains")
			continue
		}
		k.revision(messages...)
		if v := b.store.next(t); v.Table.Digest() != next.Digest() || v.Table.Len() != next.Len() || v.Epoch != epoch+1 {
			t.Fatalf("%d rows of epoch %d, want %d", v.Table.Len(), v.Epoch, next.Len())
		}
		held = next
		b.Report(&fairleadv1.Report{Epoch: epoch + 1, Number: 1})
		if r := <-k.reports; r.GetNumber() != 1 {
			t.Errorf("report %v", r)
		}
		k.done <- status.Error(codes.Unavailable, "drains")
	}
}

// TestBadQuestions: the stream is closed, the table is kept, and the next hello tells of no table.
func TestBadQuestions(t *testing.T) {
	good, other := someTable(t, 1, 30), someTable(t, 2, 30)
	for name, c := range map[string]struct {
		send   func(*call)
		metric string
	}{
		"too fine":         {func(k *call) { k.ask(&fairleadv1.Question{ZoneBits: 14}) }, "fairlead_malformed_messages_total"},
		"twice":            {func(k *call) { k.ask(&fairleadv1.Question{}); k.ask(&fairleadv1.Question{}) }, "fairlead_malformed_messages_total"},
		"after a revision": {func(k *call) { k.revision(&fairleadv1.Revision{Number: 4}); k.ask(&fairleadv1.Question{}) }, "fairlead_malformed_messages_total"},
		"within a revision": {func(k *call) {
			k.revision(&fairleadv1.Revision{Number: 4, More: true})
			k.ask(&fairleadv1.Question{})
		}, "fairlead_malformed_messages_total"},
		"no bucket": {func(k *call) {
			k.revision(&fairleadv1.Revision{Number: 4, Common: &fairleadv1.Part{ReplaceBuckets: []uint32{0}, Digest: good.Part(fwd.Common).Digest()}})
		}, "fairlead_malformed_messages_total"},
		"a bucket too few": {func(k *call) {
			k.ask(&fairleadv1.Question{CommonBits: 4})
			c := resumed(other, k.answer())
			c.Parts[fwd.Common].Buckets = c.Parts[fwd.Common].Buckets[1:]
			k.revision(split(4, &fwd.Change{Parts: c.Parts}, 1000)...)
		}, "fairlead_digest_mismatches_total"},
		"too many buckets": {func(k *call) {
			k.revision(&fairleadv1.Revision{Number: 4, Common: &fairleadv1.Part{ReplaceBuckets: make([]uint32, 100)}})
		}, "fairlead_malformed_messages_total"},
	} {
		t.Run(name, func(t *testing.T) {
			ctl := newController(t)
			b := start(t, func(cfg *Config) { cfg.Limits.Rows = 40 }, ctl)
			k := ctl.welcomed(t, 7)
			k.revision(split(3, snapshot(good), 1000)...)
			b.store.next(t)
			k.done <- status.Error(codes.Unavailable, "drains")
			k = ctl.welcomed(t, 7)
			c.send(k)
			k.gone()
			k = ctl.welcomed(t, 7)
			if k.hello.GetHeld() != nil {
				t.Errorf("held %v after a bad stream", k.hello.GetHeld())
			}
			if v, ok := b.store.Current(); !ok || v.Table.Digest() != good.Digest() {
				t.Error("the table changed")
			}
			if b.metric(t, c.metric) != 1 {
				t.Errorf("%s is not 1", c.metric)
			}
		})
	}
}

// TestHelloIsSmall: who comes back to find nothing changed has told three digests, however large the table.
func TestHelloIsSmall(t *testing.T) {
	put := make([]fwd.Row, 20_000)
	for i := range put {
		put[i] = fwd.Row{Key: fmt.Sprintf("\x63%d", i), Value: "v"}
	}
	table, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{fwd.Common: (&fwd.Part{}).With(nil, put)})
	if err != nil {
		t.Fatal(err)
	}
	ctl := newController(t)
	store := newKeeper()
	store.puts = append(store.puts, Version{Table: table, Epoch: 1 << 60, Revision: 1 << 40}) // from the disk
	b := start(t, func(cfg *Config) { cfg.Store = store }, ctl)
	k := ctl.welcomed(t, 1<<60)
	if n := proto.Size(k.hello); n > 128 || k.held() != digests(table) {
		t.Errorf("hello of %d bytes, held %v", n, k.held())
	}
	k.revision(&fairleadv1.Revision{Number: 1 << 41})
	if v := store.next(t); v.Table.Digest() != table.Digest() {
		t.Error("the table changed")
	}
	b.stop()
}
