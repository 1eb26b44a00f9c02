package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

// model is an independent account of what the store must hold: plain maps.
type model struct {
	rows  map[fwd.Audience]map[string]fwd.Row
	zones map[string]string
}

func (m *model) publish(updates []fwd.Update, zones []NodeZone) {
	for _, u := range updates {
		if m.rows[u.Audience] == nil {
			m.rows[u.Audience] = map[string]fwd.Row{}
		}
		for _, k := range u.Remove {
			delete(m.rows[u.Audience], k)
		}
		for _, r := range u.Put {
			m.rows[u.Audience][r.Key] = r
		}
	}
	for _, z := range zones {
		m.zones[z.Node] = z.Zone
	}
}

func (m *model) table(t *testing.T, node string) *fwd.Table {
	t.Helper()
	parts := map[fwd.Scope]*fwd.Part{}
	for _, a := range []fwd.Audience{{}, zoneAudience(m.zones[node]), nodeAudience(node)} {
		var put []fwd.Row
		for _, r := range m.rows[a] {
			put = append(put, r)
		}
		parts[a.Scope] = (&fwd.Part{}).With(nil, put)
	}
	table, err := fwd.NewTable(parts)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// agent is one node's reader and its follower, nil while it is away.
type agent struct {
	node     string
	reader   *reader
	follower *Follower
}

func (a *agent) catchUp() {
	if rev := a.follower.take(); rev != nil {
		a.reader.take(a.follower, rev)
	}
}

// TestHistories holds that a follower that joins, lags, leaves, moves between zones, forgets its table, and resumes against
// this or a restarted store ends with the table that a plain account of the history gives, whatever the message size.
func TestHistories(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runHistory(t, seed) })
	}
}

func runHistory(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	nodes, zones := []string{"n0", "n1", "n2", "n3"}, []string{"", "a", "b"}
	opts := Options{Recent: 1 + rng.IntN(6), MessageBytes: 1024 << rng.IntN(4)}
	s := NewStore(1, opts)
	m := &model{rows: map[fwd.Audience]map[string]fwd.Row{}, zones: map[string]string{}}
	var agents []*agent
	for _, n := range nodes {
		agents = append(agents, &agent{node: n, reader: newReader(t)})
	}
	for range 120 {
		switch a := agents[rng.IntN(len(agents))]; rng.IntN(8) {
		case 0, 1, 2:
			updates := randomUpdates(rng, nodes, zones)
			var moves []NodeZone
			if rng.IntN(4) == 0 {
				moves = append(moves, NodeZone{Node: a.node, Zone: zones[rng.IntN(3)]})
			}
			m.publish(updates, moves)
			s.Publish(updates, moves, time.Unix(1, 0))
		case 3:
			if a.follower != nil {
				a.follower.Close()
				a.follower = nil
			}
		case 4:
			if rng.IntN(4) == 0 {
				s = restart(s, m, agents, opts)
			}
		default:
			if a.follower == nil {
				a.follower = s.Follow(a.node, a.reader.held())
			}
			a.catchUp()
			sameTable(t, a.reader.table, m.table(t, a.node))
		}
	}
	checkEnd(t, s, m, agents)
}

// restart replaces the store by an empty one that gets everything in one revision.
func restart(old *Store, m *model, agents []*agent, opts Options) *Store {
	s := NewStore(old.Epoch()+1, opts)
	var updates []fwd.Update
	for a, rows := range m.rows {
		u := fwd.Update{Audience: a}
		for _, r := range rows {
			u.Put = append(u.Put, r)
		}
		updates = append(updates, u)
	}
	var zones []NodeZone
	for n, z := range m.zones {
		zones = append(zones, NodeZone{Node: n, Zone: z})
	}
	s.Publish(updates, zones, time.Time{})
	for _, a := range agents {
		a.follower = nil
	}
	return s
}

func checkEnd(t *testing.T, s *Store, m *model, agents []*agent) {
	t.Helper()
	for _, a := range agents {
		if a.follower == nil {
			a.follower = s.Follow(a.node, a.reader.held())
		}
		a.catchUp()
		want := m.table(t, a.node)
		sameTable(t, a.reader.table, want)
		stored, revision, err := s.Table(a.node)
		if err != nil {
			t.Fatal(err)
		}
		sameTable(t, stored, want)
		number, digest := a.follower.Heartbeat()
		if number != revision || digest != want.Digest() {
			t.Errorf("heartbeat %d %x, want %d %x", number, digest, revision, want.Digest())
		}
		if limit := s.opts.MessageBytes; a.reader.biggest > limit+2100 {
			t.Errorf("message of %d bytes, limit %d and one row of 2000", a.reader.biggest, limit)
		}
		a.follower.Close()
		a.follower.Close()
	}
	for a := range m.rows {
		var gone []string
		for k := range m.rows[a] {
			gone = append(gone, k)
		}
		s.Publish([]fwd.Update{{Audience: a, Remove: gone}}, nil, time.Time{})
	}
	for n := range m.zones {
		s.Publish(nil, []NodeZone{{Node: n, Gone: true}}, time.Time{})
	}
	if st := s.Stats(); st.Audiences != 0 || st.Followers != 0 || st.Nodes != 0 {
		t.Errorf("after everything went: %+v", st)
	}
}
