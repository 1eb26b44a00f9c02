package table

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// copyist keeps a store like the leader's, as a replica does.
type copyist struct {
	t     *testing.T
	store *Store
	from  *Replica
	epoch uint64
	bytes int
	// asked is how often the leader compared buckets.
	asked int
}

func (c *copyist) connect(leader *Store) {
	held := &fairleadv1.Held{CommonDigest: c.store.CommonDigest(), Revision: c.store.Revision(), Buckets: true}
	c.from, c.epoch = leader.FollowAll(held), leader.Epoch()
	q := c.from.Question()
	if q == nil {
		return
	}
	a, err := c.store.Answer(q)
	if err != nil {
		c.t.Fatal(err)
	}
	c.asked++
	c.from.Answer(a)
}

func (c *copyist) catchUp() {
	c.t.Helper()
	messages, cause := c.from.Next()
	if len(messages) == 0 {
		return
	}
	step := Step{Epoch: c.epoch}
	for _, m := range messages {
		c.bytes += totalLen(m)
		if err := step.Append(decode(c.t, m)); err != nil {
			c.t.Fatal(err)
		}
	}
	if !step.Cause.Equal(cause) {
		c.t.Fatalf("cause %v, want %v", step.Cause, cause)
	}
	if err := c.store.Adopt(step); err != nil {
		c.t.Fatal(err)
	}
	number, digest := c.from.Heartbeat()
	if c.store.Digest() != digest || c.store.Revision() != number || c.store.Epoch() != c.epoch {
		c.t.Fatalf("revision %d of epoch %d with %x, want %d, %d, %x", c.store.Revision(), c.store.Epoch(), c.store.Digest(), number, c.epoch, digest)
	}
}

// TestReplicas: whatever happens, in whatever order, to streams between replicas, and whoever leads, a replica that has caught
// up gives each node the table that a plain account of the history gives, and agents that stay with one hear of numbers
// that only grow.
func TestReplicas(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runReplicas(t, seed) })
	}
}

func runReplicas(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	nodes, zones := []string{"n0", "n1", "n2", "n3"}, []string{"", "a", "b"}
	m := &model{rows: map[fwd.Audience]map[string]fwd.Row{}, zones: map[string]string{}}
	var all []*copyist
	var agents []*agent
	for i := range 3 {
		all = append(all, &copyist{t: t, store: NewStore(1, Options{Recent: 1 + rng.IntN(6), MessageBytes: 1024 << rng.IntN(4)})})
		agents = append(agents, &agent{node: nodes[i], reader: newReader(t), follower: all[i].store.Follow(nodes[i], nil)})
	}
	leader := all[0]
	numbers := make([]uint64, len(all))
	for range 200 {
		i := rng.IntN(len(all))
		c, a := all[i], agents[i]
		switch rng.IntN(9) {
		case 0, 1, 2:
			updates := randomUpdates(rng, nodes, zones)
			var moves []NodeZone
			if rng.IntN(4) == 0 {
				moves = append(moves, NodeZone{Node: nodes[rng.IntN(4)], Zone: zones[rng.IntN(3)]})
			}
			m.publish(updates, moves)
			leader.store.Publish(updates, moves, time.Unix(1, 0))
		case 3:
			c.from = nil // a cut stream; the leader does not know
		case 4:
			if rng.IntN(3) == 0 {
				leader = c
				c.from = nil
				promote(m, all, c)
			}
		case 5:
			a.catchUp()
			if number, _ := a.follower.Heartbeat(); number < numbers[i] {
				t.Fatalf("an agent hears of revision %d after %d", number, numbers[i])
			} else {
				numbers[i] = number
			}
		default:
			if c == leader {
				continue
			}
			if c.from == nil {
				c.connect(leader.store)
			}
			c.catchUp()
		}
	}
	for i, c := range all {
		if c != leader {
			c.connect(leader.store)
			c.catchUp()
		}
		agents[i].catchUp()
		sameTable(t, agents[i].reader.table, m.table(t, agents[i].node))
		for _, node := range nodes {
			table, _, err := c.store.Table(node)
			if err != nil {
				t.Fatal(err)
			}
			sameTable(t, table, m.table(t, node))
		}
	}
}

// promote makes one lead, with all that there is, in a new epoch.
func promote(m *model, all []*copyist, c *copyist) {
	var highest uint64
	for _, other := range all {
		highest = max(highest, other.store.Epoch(), other.store.fence)
		other.from = nil
	}
	c.store.Lead(highest + 1)
	updates, zones := m.everything()
	c.store.Succeed(Image{}.With(updates), zones, time.Time{})
}

func (m *model) everything() (updates []fwd.Update, zones []NodeZone) {
	for a, rows := range m.rows {
		u := fwd.Update{Audience: a}
		for _, r := range rows {
			u.Put = append(u.Put, r)
		}
		updates = append(updates, u)
	}
	for n, z := range m.zones {
		zones = append(zones, NodeZone{Node: n, Zone: z})
	}
	return updates, zones
}

// TestFailover: a promoted replica that computes what it holds sends nobody a row, and what differs is all that is sent, to
// agents and to the other replica; the old leader is refused.
func TestFailover(t *testing.T) {
	var updates []fwd.Update
	common := fwd.Update{}
	for i := range 50 {
		p := port(i)
		common.Put = append(common.Put, fwd.EncodePort(p), backend(p, i))
	}
	updates = append(updates, common, fwd.Update{Audience: nodeAudience("n1"), Put: []fwd.Row{backend(port(1), 3)}})
	zones := []NodeZone{{Node: "n1", Zone: "a"}, {Node: "n2"}}
	old := NewStore(5, Options{})
	old.SetAgents([]fwd.AgentPod{{Name: "agent-1", UID: "u1", Node: "n1"}})
	old.Publish(updates, zones, time.Unix(1, 0))

	first, second := &copyist{t: t, store: NewStore(1, Options{})}, &copyist{t: t, store: NewStore(1, Options{})}
	for _, c := range []*copyist{first, second} {
		c.connect(old)
		c.catchUp()
	}
	if pod, ok := first.store.AgentPod("agent-1"); !ok || pod.UID != "u1" || pod.Node != "n1" {
		t.Errorf("agent's Pod %+v, %v", pod, ok)
	}
	if got := first.store.Nodes(); len(got) != 2 {
		t.Errorf("nodes %v", got)
	}
	a := &agent{node: "n1", reader: newReader(t), follower: first.store.Follow("n1", nil)}
	a.catchUp()
	rows := a.reader.rows

	first.store.Lead(6)
	before := first.store.Revision()
	if first.store.Epoch() != 5 || first.store.Adopt(Step{Epoch: 5, Number: 99}) == nil {
		t.Error("the predecessor's tables under another name, or more of them")
	}
	if now := first.store.Succeed(Image{}.With(updates), zones, time.Unix(2, 0)); now != before {
		t.Errorf("the same tables are revision %d after %d", now, before)
	}
	first.store.Succeed(Image{}.With(updates), append(zones[:1:1], NodeZone{Node: "n3"}), time.Unix(3, 0))
	if got := fmt.Sprint(first.store.Nodes()); got != "[n1 n3]" {
		t.Errorf("nodes %s", got)
	}
	second.bytes = 0
	second.connect(first.store)
	second.catchUp()
	if second.bytes > 300 {
		t.Errorf("%d bytes for a replica that lacks one node", second.bytes)
	}
	updates[0].Put = updates[0].Put[1:]
	first.store.Succeed(Image{}.With(updates), zones, time.Unix(4, 0))
	a.catchUp()
	if a.reader.rows != rows+1 {
		t.Errorf("%d rows were sent for one that went", a.reader.rows-rows)
	}
	for _, h := range []struct {
		epoch, revision uint64
		behind          bool
	}{{6, 0, false}, {5, before + 99, false}, {6, before + 99, true}, {7, 0, true}} {
		if got := second.store.Behind(&fairleadv1.Held{Epoch: h.epoch, Revision: h.revision}); got != h.behind {
			t.Errorf("behind %+v: %v", h, got)
		}
	}
	if err := second.store.Adopt(Step{Epoch: 5, Number: 99}); !errors.Is(err, ErrFenced) {
		t.Errorf("the old leader: %v", err)
	}
	if err := second.store.Adopt(Step{Epoch: 6, Number: 0}); !errors.Is(err, ErrOrder) {
		t.Errorf("a number that goes back: %v", err)
	}
}

// TestColdLeader: one that knows nothing of numbers gives higher ones than its followers have heard of.
func TestColdLeader(t *testing.T) {
	warm := &copyist{t: t, store: NewStore(1, Options{})}
	if err := warm.store.Adopt(Step{Epoch: 7, Number: 41, Whole: true}); err != nil {
		t.Fatal(err)
	}
	cold := NewStore(8, Options{})
	cold.Publish([]fwd.Update{{Put: []fwd.Row{backend(port(1), 1)}}}, nil, time.Time{})
	warm.connect(cold)
	warm.catchUp()
	if got := warm.store.Revision(); got != 41 {
		t.Errorf("revision %d", got)
	}
	cold.Publish([]fwd.Update{{Put: []fwd.Row{backend(port(1), 2)}}}, nil, time.Time{})
	warm.catchUp()
	if got := warm.store.Revision(); got != 42 {
		t.Errorf("revision %d", got)
	}
}

func TestStepRefusesWhatIsMalformed(t *testing.T) {
	for name, r := range map[string]*fairleadv1.Revision{
		"two parts":    {Number: 1, Audiences: []*fairleadv1.Audience{{Common: &fairleadv1.Part{}, Zone: &fairleadv1.Part{}}}},
		"no part":      {Number: 1, Audiences: []*fairleadv1.Audience{{Name: "n1"}}},
		"another one":  {Number: 2},
		"whole at end": {Number: 1, Whole: true},
	} {
		s := Step{}
		if err := s.Append(&fairleadv1.Revision{Number: 1}); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(r); !errors.Is(err, fwd.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
