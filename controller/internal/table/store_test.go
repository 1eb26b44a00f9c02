package table

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

func common(rows ...fwd.Row) []fwd.Update { return []fwd.Update{{Put: rows}} }

func mustNext(t *testing.T, f *Follower) *revision {
	t.Helper()
	select {
	case <-f.Changed():
	default:
		t.Fatal("not woken")
	}
	r := f.take()
	if r == nil {
		t.Fatal("woken for nothing")
	}
	return r
}

func mustSleep(t *testing.T, f *Follower) {
	t.Helper()
	select {
	case <-f.Changed():
		t.Fatal("woken by a change that does not concern it")
	default:
	}
}

// TestWakes holds that only the followers concerned are woken, once until they ask.
func TestWakes(t *testing.T) {
	s := NewStore(7, Options{})
	p := port(1)
	s.Publish(common(fwd.EncodePort(p)), []NodeZone{{Node: "a", Zone: "z"}, {Node: "b", Zone: "y"}}, time.Time{})
	a, b := s.Follow("a", nil), s.Follow("b", nil)
	mustNext(t, a)
	mustNext(t, b)

	n := s.Publish([]fwd.Update{{Audience: zoneAudience("z"), Put: []fwd.Row{backend(p, 1)}}}, nil, time.Unix(5, 0))
	if r := mustNext(t, a); r.number != n || !r.cause.Equal(time.Unix(5, 0)) {
		t.Errorf("revision %d of %v, want %d", r.number, r.cause, n)
	}
	mustSleep(t, b)
	if through, last := b.Position(); through != n || last != n-1 {
		t.Errorf("b is through %d, last %d: want through %d without hearing of it", through, last, n)
	}

	s.Publish(common(backend(p, 2)), nil, time.Unix(9, 0))
	n = s.Publish([]fwd.Update{{Audience: nodeAudience("b"), Put: []fwd.Row{backend(p, 3)}}}, nil, time.Unix(8, 0))
	if through, last := b.Position(); through != last || through == n {
		t.Errorf("b has not asked, yet is through %d, last %d", through, last)
	}
	if r := mustNext(t, b); r.number != n || !r.cause.Equal(time.Unix(8, 0)) {
		t.Errorf("revision %d caused at %v, want %d with the oldest cause", r.number, r.cause, n)
	}
	mustSleep(t, b)
	if r := b.take(); r != nil {
		t.Errorf("nothing changed, yet there is revision %d", r.number)
	}
}

// TestPublishNothing holds that what is there already makes no revision.
func TestPublishNothing(t *testing.T) {
	s := NewStore(1, Options{})
	row := backend(port(1), 1)
	n := s.Publish(common(row), []NodeZone{{Node: "a"}}, time.Time{})
	f := s.Follow("a", nil)
	mustNext(t, f)
	again := []fwd.Update{
		{Put: []fwd.Row{row}},
		{Remove: []string{"absent"}},
		{Audience: zoneAudience(""), Put: []fwd.Row{row}},
		{Audience: zoneAudience(""), Remove: []string{row.Key}},
	}
	if got := s.Publish(again, []NodeZone{{Node: "a"}, {Node: "b", Gone: true}}, time.Time{}); got != n {
		t.Errorf("revision %d, want still %d", got, n)
	}
	mustSleep(t, f)
}

// TestEncodesOnce holds that followers share bytes: one encoding per pair of versions, the same memory for all.
func TestEncodesOnce(t *testing.T) {
	s := NewStore(1, Options{})
	p := port(1)
	s.Publish(common(fwd.EncodePort(p), backend(p, 1)), nil, time.Time{})
	var followers []*Follower
	for i := range 50 {
		f := s.Follow(string(rune('A'+i)), nil)
		f.Next()
		followers = append(followers, f)
	}
	if got := s.Stats().Encoded; got != 1 {
		t.Errorf("%d encodings for 50 snapshots, want 1", got)
	}
	s.Publish(common(backend(p, 2)), nil, time.Now())
	shared := map[*byte]bool{}
	for _, f := range followers {
		m, _ := f.Next()
		if len(m) != 1 || len(m[0]) != 1 || totalLen(m[0]) > 48 {
			t.Fatalf("one endpoint took %d messages, the first of %d slices and %d bytes: want 1, 1 and at most 48", len(m), len(m[0]), totalLen(m[0]))
		}
		shared[&m[0][0][0]] = true
	}
	if got := s.Stats().Encoded; got != 2 || len(shared) != 1 {
		t.Errorf("%d encodings in %d places of memory, want 2 and 1", got, len(shared))
	}
}

// TestResume holds that nothing is resent that is held: the current digest, a recent one, an unknown one.
func TestResume(t *testing.T) {
	s := NewStore(1, Options{Recent: 3})
	p := port(1)
	for i := range 100 {
		s.Publish(common(backend(p, i)), nil, time.Time{})
	}
	old := newReader(t)
	first := s.Follow("a", nil)
	old.take(first, mustNext(t, first))

	for _, tc := range []struct{ changes, rows int }{{0, 0}, {2, 2}, {3, 105}} {
		r := *old
		r.rows = 0
		for i := range tc.changes {
			s.Publish(common(backend(p, 200+10*tc.changes+i)), nil, time.Time{})
		}
		f := s.Follow("a", r.held())
		if f.NeedsSnapshot() != (tc.rows > 100) {
			t.Errorf("%d changes: needs a snapshot: %v", tc.changes, f.NeedsSnapshot())
		}
		r.take(f, mustNext(t, f))
		if r.rows != tc.rows {
			t.Errorf("%d changes: %d rows came, want %d", tc.changes, r.rows, tc.rows)
		}
		f.Close()
		old = &r
	}
}

// TestGoneNodeKeepsZone holds that an agent that outlives its Node object keeps its zone's list, and that nothing is left
// of it when it goes.
func TestGoneNodeKeepsZone(t *testing.T) {
	s := NewStore(1, Options{})
	row := backend(port(1), 1)
	s.Publish([]fwd.Update{{Audience: zoneAudience("z"), Put: []fwd.Row{row}}}, []NodeZone{{Node: "a", Zone: "z"}}, time.Time{})
	f := s.Follow("a", nil)
	r := newReader(t)
	r.take(f, mustNext(t, f))
	s.Publish(nil, []NodeZone{{Node: "a", Gone: true}}, time.Time{})
	mustSleep(t, f)
	if table, _, err := s.Table("a"); err != nil || table.Digest() != r.table.Digest() {
		t.Errorf("table changed with the Node object: %v", err)
	}
	f.Close()
	if st := s.Stats(); st.Nodes != 0 {
		t.Errorf("%d nodes left", st.Nodes)
	}
	s.Publish(nil, []NodeZone{{Node: "a", Zone: "z"}}, time.Time{})
	f = s.Follow("a", nil)
	s.Publish(nil, []NodeZone{{Node: "a", Gone: true}}, time.Time{})
	s.Publish(nil, []NodeZone{{Node: "a", Zone: "z"}}, time.Time{})
	f.Close()
	if st := s.Stats(); st.Nodes != 1 {
		t.Errorf("a node that came back was forgotten: %+v", st)
	}
}

// commonSections takes a snapshot and returns its pieces.
func commonSections(t *testing.T, f *Follower) [][]byte {
	t.Helper()
	rev := mustNext(t, f)
	f.store.messages(rev)
	return rev.changes[fwd.Common].sections
}

// TestSnapshotSharesPieces holds that the next version's snapshot keeps the pieces that no change touched.
func TestSnapshotSharesPieces(t *testing.T) {
	s := NewStore(1, Options{MessageBytes: 2048})
	p := port(1)
	var rows []fwd.Row
	for i := range 2000 {
		rows = append(rows, backend(p, i))
	}
	s.Publish(common(rows...), nil, time.Time{})
	have := map[*byte]bool{}
	for _, b := range commonSections(t, s.Follow("a", nil)) {
		have[&b[0]] = true
	}
	s.Publish(common(backend(p, 2001)), nil, time.Time{})
	f := s.Follow("b", nil)
	rev := mustNext(t, f)
	r := newReader(t)
	r.take(f, rev)
	sections := rev.changes[fwd.Common].sections
	fresh := 0
	for _, b := range sections {
		if !have[&b[0]] {
			fresh++
		}
	}
	if len(sections) < 20 || fresh > 4 {
		t.Errorf("%d of %d sections made anew for one row", fresh, len(sections))
	}
	if r.table.Part(fwd.Common).Len() != 2001 || r.biggest > 2048 {
		t.Errorf("%d rows, biggest message %d", r.table.Part(fwd.Common).Len(), r.biggest)
	}
}

// TestEncodingIsProtobuf holds the bytes written by hand equal to those of the generated code.
func TestEncodingIsProtobuf(t *testing.T) {
	p := port(3)
	cause := time.UnixMicro(1_800_000_000_000_001)
	for _, scope := range fwd.Scopes() {
		d := fwd.PartChange{
			Remove: []string{"\x63a", "\x63b"}, Put: []fwd.Row{fwd.EncodePort(p), backend(p, 3), {Key: "\x63c", Value: "v"}}, Digest: 5,
		}
		r := revision{number: 300, cause: cause}
		messages := r.cut(encodeDifference(scope, d, 1<<20), 1<<20)
		want := &fairleadv1.Revision{Number: 300, CauseUnixMicros: uint64(cause.UnixMicro())}
		switch scope {
		case fwd.Common:
			want.Common = d.Proto()
		case fwd.Zone:
			want.Zone = d.Proto()
		case fwd.Node:
			want.Node = d.Proto()
		}
		if got := decode(t, messages[0]); !proto.Equal(got, want) {
			t.Errorf("%v part: decoded\n%v\nwant\n%v", scope, got, want)
		}
		size := proto.Size(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Revision{Revision: want}})
		if got := totalLen(messages[0]); got != size {
			t.Errorf("%v part: %d bytes, generated code makes %d", scope, got, size)
		}
	}
}

// TestNewStoreDefaults holds that a nonsensical limit does not make a store that cannot send.
func TestNewStoreDefaults(t *testing.T) {
	for _, o := range []Options{{}, {Recent: -1, MessageBytes: -1}, {MessageBytes: 1}} {
		s := NewStore(1, o)
		if s.opts.Recent != defaultRecent || s.opts.MessageBytes < minMessageBytes {
			t.Errorf("options %+v became %+v", o, s.opts)
		}
	}
}
