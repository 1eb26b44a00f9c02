package table

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// randomUpdates returns changes of random audiences: ports, backends and rows of a kind nobody knows come, change and go.
func randomUpdates(rng *rand.Rand, nodes, zones []string) []fwd.Update {
	var updates []fwd.Update
	for range 1 + rng.IntN(4) {
		a := fwd.Audience{}
		switch rng.IntN(3) {
		case 1:
			a = zoneAudience(zones[rng.IntN(len(zones))])
		case 2:
			a = nodeAudience(nodes[rng.IntN(len(nodes))])
		}
		u := fwd.Update{Audience: a}
		seen := map[string]bool{}
		for range rng.IntN(30) {
			r := randomRow(rng)
			if seen[r.Key] {
				continue
			}
			seen[r.Key] = true
			if rng.IntN(3) == 0 {
				u.Remove = append(u.Remove, r.Key)
			} else {
				u.Put = append(u.Put, r)
			}
		}
		slices.Sort(u.Remove)
		slices.SortFunc(u.Put, func(a, b fwd.Row) int { return strings.Compare(a.Key, b.Key) })
		updates = append(updates, u)
	}
	return updates
}

func randomRow(rng *rand.Rand) fwd.Row {
	p := port(rng.IntN(20))
	switch rng.IntN(6) {
	case 0:
		return fwd.Row{Key: "\x63" + string(rune('a'+rng.IntN(9))), Value: strings.Repeat("v", rng.IntN(2000))}
	case 1:
		p.Usable = rng.IntN(2) == 0
		return fwd.EncodePort(p)
	default:
		return backend(p, rng.IntN(60))
	}
}

func port(n int) fwd.ServicePort {
	return fwd.ServicePort{
		PortName:  fwd.PortName{Namespace: "default", Name: "s" + strings.Repeat("x", n), Protocol: fwd.TCP},
		ClusterIP: netip.AddrFrom4([4]byte{10, 96, 0, byte(n + 1)}), Port: 80, Usable: true,
	}
}

func backend(p fwd.ServicePort, n int) fwd.Row {
	addr := netip.AddrFrom4([4]byte{10, 244, byte(n >> 8), byte(n)})
	return fwd.EncodeBackend(p.ID(), fwd.Backend{Addr: netip.AddrPortFrom(addr, 8080)})
}

// reader assembles a table from encoded messages, as an agent does.
type reader struct {
	t       *testing.T
	table   *fwd.Table
	pending fwd.Change
	biggest int
	// moved is how many messages and rows came.
	messages, rows int
}

func newReader(t *testing.T) *reader { return &reader{t: t, table: &fwd.Table{}} }

func (r *reader) held() *fairleadv1.Held {
	return &fairleadv1.Held{
		CommonDigest: r.table.Part(fwd.Common).Digest(),
		ZoneDigest:   r.table.Part(fwd.Zone).Digest(),
		NodeDigest:   r.table.Part(fwd.Node).Digest(),
	}
}

// take applies all messages of a revision.
func (r *reader) take(f *Follower, rev *revision) {
	r.t.Helper()
	messages := f.store.messages(rev)
	for i, m := range messages {
		r.messages++
		r.biggest = max(r.biggest, totalLen(m))
		revision := decode(r.t, m)
		if revision.GetMore() != (i < len(messages)-1) {
			r.t.Fatalf("message %d of %d says more=%v", i+1, len(messages), revision.GetMore())
		}
		if revision.GetNumber() != rev.number {
			r.t.Fatalf("message has number %d, want %d", revision.GetNumber(), rev.number)
		}
		c := fwd.ChangeFromProto(revision)
		for _, p := range c.Parts {
			if p != nil {
				r.rows += len(p.Put) + len(p.Remove)
			}
		}
		r.pending.Append(c)
	}
	r.apply()
	if _, digest := f.Heartbeat(); r.table.Digest() != digest {
		r.t.Fatalf("revision %d: digest %x, announced %x", rev.number, r.table.Digest(), digest)
	}
}

func (r *reader) apply() {
	r.t.Helper()
	next, _, err := r.table.Apply(r.pending)
	if err != nil {
		r.t.Fatalf("apply: %v", err)
	}
	r.table, r.pending = next, fwd.Change{}
}

func decode(t *testing.T, m Message) *fairleadv1.Revision {
	t.Helper()
	var response fairleadv1.FollowResponse
	if err := proto.Unmarshal(slices.Concat(m...), &response); err != nil {
		t.Fatalf("decode message: %v", err)
	}
	if response.GetRevision() == nil {
		t.Fatalf("message is %v, want a revision", &response)
	}
	return response.GetRevision()
}

func sameTable(t *testing.T, got, want *fwd.Table) {
	t.Helper()
	var a, b strings.Builder
	for w, table := range map[*strings.Builder]*fwd.Table{&a: got, &b: want} {
		if err := fwd.WriteText(w, table); err != nil {
			t.Fatal(err)
		}
	}
	if a.String() != b.String() || got.Digest() != want.Digest() || got.Len() != want.Len() {
		t.Fatalf("table of digest %x, %d rows:\n%s\nwant %x, %d rows:\n%s", got.Digest(), got.Len(), a.String(), want.Digest(), want.Len(), b.String())
	}
}
