package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// many are n rows of 17 to 40 bytes, some of them others for each version.
func many(rng *rand.Rand, n, version int) fwd.Update {
	var u fwd.Update
	for i := range n {
		r := fwd.Row{Key: fmt.Sprintf("\x63 row %05d", i), Value: "the value"}
		if rng.IntN(100) == 0 {
			r.Value = fmt.Sprint(version)
		}
		u.Put = append(u.Put, r)
	}
	return u
}

// returning is an agent that asks to be compared, and counts what is sent to it.
type returning struct {
	*reader
}

func (r *returning) follow(s *Store, node string) *Follower {
	r.t.Helper()
	held := r.held()
	held.Buckets = true
	f := s.Follow(node, held)
	r.answer(f)
	return f
}

func (r *returning) answer(f *Follower) {
	r.t.Helper()
	q := f.Question()
	if q == nil {
		return
	}
	a, err := r.table.Answer(q)
	if err != nil {
		r.t.Fatal(err)
	}
	f.Answer(a)
	if f.Question() != nil {
		r.t.Fatal("the question is asked again")
	}
}

// catchUp takes what there is, and returns its length in bytes.
func (r *returning) catchUp(f *Follower) int {
	r.t.Helper()
	rev := f.take()
	if rev == nil {
		return 0
	}
	n := 0
	for _, m := range f.store.messages(rev) {
		n += totalLen(m)
	}
	r.take(f, rev)
	return n
}

// TestOneRowOfMany: a store that does not know the version that an agent holds sends the rows of a bucket, not those of the
// table; and encodes them once for all who come.
func TestOneRowOfMany(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	rows := many(rng, 10_000, 0)
	first, second := NewStore(1, Options{}), NewStore(2, Options{})
	first.Publish([]fwd.Update{rows}, nil, time.Time{})
	var agents []*returning
	for i := range 5 {
		agents = append(agents, &returning{reader: newReader(t)})
		if n := agents[i].catchUp(agents[i].follow(first, "n")); n < 250_000 {
			t.Fatalf("a table of %d bytes", n)
		}
	}
	rows.Put[77].Value = "another one"
	second.Publish([]fwd.Update{rows}, nil, time.Time{})
	want, _, err := second.Table("n")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range agents {
		f := a.follow(second, "n")
		if f.NeedsSnapshot() {
			t.Error("a snapshot seems to be needed")
		}
		if n := a.catchUp(f); n > 3000 {
			t.Errorf("%d bytes for one row", n)
		}
		sameTable(t, a.table, want)
		f.Close()
	}
	if n := second.Stats().Encoded; n != 1 {
		t.Errorf("encoded %d times", n)
	}
	old := &returning{reader: newReader(t)}
	old.table = agents[0].table
	f := second.Follow("n", &fairleadv1.Held{CommonDigest: 5})
	if f.Question() != nil || !f.NeedsSnapshot() {
		t.Error("an agent that knows no buckets is asked")
	}
	if n := old.catchUp(f); n < 250_000 {
		t.Errorf("%d bytes for a whole table", n)
	}
}

// TestMostlyAnother: where most buckets differ, the snapshot is sent that others get.
func TestMostlyAnother(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	s := NewStore(1, Options{})
	s.Publish([]fwd.Update{many(rng, 1000, 0)}, nil, time.Time{})
	for range 4 {
		a := &returning{reader: newReader(t)}
		a.table = madeUp(t, rng, 1000)
		f := a.follow(s, "n")
		if !f.NeedsSnapshot() {
			t.Error("no snapshot seems to be needed")
		}
		a.catchUp(f)
	}
	if n := s.Stats().Encoded; n != 1 {
		t.Errorf("encoded %d times", n)
	}
	for range 3 * maxResumes { // what is nearly the same is kept for others for a while
		a := &returning{reader: newReader(t)}
		a.table = madeUp(t, rng, 0)
		f := a.follow(s, "n")
		a.catchUp(f)
	}
	if c := s.channels[commonAudience()].current; len(c.resumes) > maxResumes || len(c.changes) > maxResumes+1 {
		t.Errorf("%d ways are kept, %d of them from sums", len(c.changes), len(c.resumes))
	}
}

// madeUp is a table with other rows; of 0 rows it is that of TestMostlyAnother with one row changed.
func madeUp(t *testing.T, rng *rand.Rand, n int) *fwd.Table {
	t.Helper()
	u := many(rng, n, rng.Int())
	for i := range u.Put {
		u.Put[i].Key += "x"
	}
	if n == 0 {
		u = many(rand.New(rand.NewPCG(2, 2)), 1000, 0)
		u.Put[rng.IntN(len(u.Put))].Value = fmt.Sprint(rng.Int())
	}
	table, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{fwd.Common: (&fwd.Part{}).With(nil, u.Put)})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestResumes: whatever versions agents hold of stores that are restarted, with whatever change, move and lag between hello and
// answer, they end with the tables of the store, and get no more than the buckets that differ where these are few.
func TestResumes(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runResumes(t, seed) })
	}
}

func runResumes(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 4))
	opts := Options{Recent: 1 + rng.IntN(3), MessageBytes: 1024 << rng.IntN(6)}
	audiences := []fwd.Audience{{}, zoneAudience("a"), zoneAudience("b"), nodeAudience("n0")}
	rows := map[fwd.Audience][]fwd.Row{}
	for i, a := range audiences {
		rows[a] = many(rng, []int{2000, 600, 300, 400}[i], 0).Put
	}
	zones := []NodeZone{{Node: "n0", Zone: "a"}, {Node: "n1", Zone: "b"}}
	publish := func(s *Store) {
		var updates []fwd.Update
		for _, a := range audiences {
			updates = append(updates, fwd.Update{Audience: a, Put: slices.Clone(rows[a])})
		}
		s.Publish(updates, zones, time.Time{})
	}
	s := NewStore(1, opts)
	publish(s)
	agents := []*returning{{reader: newReader(t)}, {reader: newReader(t)}}
	for i := range 25 {
		for range rng.IntN(12) {
			some := rows[audiences[rng.IntN(len(audiences))]]
			some[rng.IntN(len(some))].Value = fmt.Sprint(i)
		}
		if rng.IntN(3) == 0 {
			s = NewStore(s.Epoch()+1, opts)
		}
		node := rng.IntN(2)
		a, name, late := agents[node], zones[node].Node, rng.IntN(4) == 0
		if !late {
			publish(s)
		}
		held := a.held()
		held.Buckets = true
		f := s.Follow(name, held)
		if late { // between hello and answer
			publish(s)
		}
		a.answer(f)
		before := a.table
		n := a.catchUp(f)
		want, _, err := s.Table(name)
		if err != nil {
			t.Fatal(err)
		}
		if a.table.Digest() != want.Digest() || a.table.Len() != want.Len() {
			t.Fatalf("round %d: %d rows, digest %x; want %d, %x", i, a.table.Len(), a.table.Digest(), want.Len(), want.Digest())
		}
		if limit := apart(before, want) + 100*(1+n/opts.MessageBytes*2); !late && n > limit {
			t.Errorf("round %d: %d bytes, the buckets that differ take %d", i, n, limit)
		}
		f.Close()
	}
}

// apart is what the buckets take in which one table differs from another, in bytes, or all of a part where they are most of it.
func apart(from, to *fwd.Table) int {
	n := 0
	for _, scope := range fwd.Scopes() {
		before, after := from.Part(scope), to.Part(scope)
		width := fwd.BucketBits(after.Len())
		buckets := after.Differing(before.Sums(width))
		if len(buckets) > 1<<width/2 {
			buckets = []fwd.Bucket{1}
		}
		c := after.Within(buckets)
		n += proto.Size(c.Proto())
	}
	return n
}

// TestReplicaResumes: a replica that follows a leader who knows nothing of what it holds gets the buckets that differ.
func TestReplicaResumes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	rows := many(rng, 10_000, 0)
	zones := []NodeZone{{Node: "n1", Zone: "a"}}
	first := NewStore(1, Options{})
	first.Publish([]fwd.Update{rows}, zones, time.Time{})
	c := &copyist{t: t, store: NewStore(0, Options{})}
	c.connect(first)
	c.catchUp()
	for i := range 5 {
		for range i {
			rows.Put[rng.IntN(len(rows.Put))].Value = fmt.Sprint(i)
		}
		rows.Put = rows.Put[:len(rows.Put)-1] // one is gone
		next := NewStore(uint64(2+i), Options{MessageBytes: 2048})
		next.Publish([]fwd.Update{rows}, zones, time.Time{})
		c.bytes = 0
		c.connect(next)
		next.Publish([]fwd.Update{{Remove: []string{rows.Put[0].Key}}}, nil, time.Time{}) // after hello and answer
		rows.Put = rows.Put[1:]
		c.catchUp()
		if c.store.CommonDigest() != next.CommonDigest() || c.store.Revision() != next.Revision() {
			t.Fatalf("revision %d with %x, want %d with %x", c.store.Revision(), c.store.CommonDigest(), next.Revision(), next.CommonDigest())
		}
		if limit := 2000 * (3 + i); c.asked != i+1 || c.bytes > limit {
			t.Errorf("%d bytes for %d rows, after %d questions: want at most %d", c.bytes, i+2, c.asked, limit)
		}
	}
}
