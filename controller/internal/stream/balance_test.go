package stream

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/controller/internal/table"
	"github.com/fairlead/fairlead/proto/fwd"
)

// crowd is two replicas of so many nodes, all of whose agents are with the first one. There are no streams: a session gets its
// reason to end, and the agent is where it then goes.
type crowd struct {
	t        *testing.T
	replicas [2]*Server
	now      time.Time
	moves    map[string]int
}

func newCrowd(t *testing.T, nodes int) *crowd {
	c := &crowd{t: t, now: time.Unix(1e9, 0), moves: map[string]int{}}
	for i := range c.replicas {
		c.replicas[i] = newRig(t, overMemory, table.Options{}, func(cfg *Config) { cfg.Nodes = func() int { return nodes } }).server
		c.replicas[i].SetControllers([]string{"10.0.0.1:1", "10.0.0.2:1"})
	}
	for n := range nodes {
		c.enter(0, fmt.Sprintf("n%d", n))
	}
	return c
}

func (c *crowd) enter(replica int, node string) {
	c.replicas[replica].register(&session{node: node, since: c.now, stop: make(chan error, stopReasons)})
}

// pass lets time pass, and the agents that are sent away go where they are let in.
func (c *crowd) pass(d time.Duration) {
	c.t.Helper()
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(sendEvery) {
		for i, s := range c.replicas {
			run := s.surplus(c.now)
			if run == nil {
				continue
			}
			s.unregister(run)
			c.moves[run.node]++
			to := i // it tries the same one first
			for c.replicas[to].turnsAway(run.node, c.now) {
				to = 1 - to
			}
			if to == i {
				c.t.Fatalf("%s is let in again at once", run.node)
			}
			c.enter(to, run.node)
		}
	}
}

// counts are the agents of both.
func (c *crowd) counts() [2]int { return [2]int{len(c.replicas[0].live), len(c.replicas[1].live)} }

// TestBalance: a replica that was added gets agents, few at a time, until the first one is near its share; none moves twice,
// and then all stay.
func TestBalance(t *testing.T) {
	c := newCrowd(t, 1000)
	c.pass(surplusLasts - time.Second)
	if c.counts() != [2]int{1000, 0} {
		t.Fatalf("agents %v before the surplus has lasted", c.counts())
	}
	c.pass(time.Minute)
	if n := c.counts()[1]; n < 100 || n > 125 {
		t.Errorf("%d agents in a minute", n)
	}
	c.pass(time.Hour / 2)
	end := boundsOf(1000, 2).end
	if c.counts() != [2]int{end, 1000 - end} || len(c.moves) != 1000-end {
		t.Errorf("agents %v, %d moved; want %d to stay", c.counts(), len(c.moves), end)
	}
	c.pass(time.Hour)
	for node, n := range c.moves {
		if n > 1 {
			t.Errorf("%s moved %d times", node, n)
		}
	}
	if c.counts()[0] != end {
		t.Errorf("agents %v after an hour", c.counts())
	}
}

// TestNoBalance: who has no clear surplus, no other replica, only new agents, or drains, sends nobody away.
func TestNoBalance(t *testing.T) {
	for name, change := range map[string]func(*crowd){
		"one replica":  func(c *crowd) { c.replicas[0].SetControllers([]string{"10.0.0.1:1"}) },
		"nobody knows": func(c *crowd) { c.replicas[0].cfg.Nodes = nil },
		"a small surplus": func(c *crowd) {
			for n := range boundsOf(1000, 2).begin {
				c.enter(0, fmt.Sprintf("n%d", n))
			}
			for n := boundsOf(1000, 2).begin; n < 1000; n++ {
				delete(c.replicas[0].live, fmt.Sprintf("n%d", n))
			}
		},
		"replicas": func(c *crowd) {
			for _, run := range c.replicas[0].live {
				run.replica = true
			}
		},
		"drains": func(c *crowd) { c.replicas[0].startDrain() },
		"a surplus that comes and goes": func(c *crowd) {
			for range 5 {
				c.pass(surplusLasts - time.Second)
				c.replicas[0].SetControllers([]string{"10.0.0.1:1"})
				c.replicas[0].cfg.Nodes = func() int { return 5000 }
				c.replicas[0].SetControllers([]string{"10.0.0.1:1", "10.0.0.2:1"})
				c.pass(time.Second)
				c.replicas[0].cfg.Nodes = func() int { return 1000 }
			}
			c.replicas[0].cfg.Nodes = func() int { return 5000 }
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, 1000)
			change(c)
			c.pass(2 * surplusLasts)
			if len(c.moves) != 0 {
				t.Errorf("%d agents moved", len(c.moves))
			}
		})
	}
	c := newCrowd(t, 1000)
	c.pass(surplusLasts)
	for _, run := range c.replicas[0].live {
		run.since = c.now
	}
	if c.pass(settled - time.Second); len(c.moves) != 0 {
		t.Errorf("%d agents moved in their first minute", len(c.moves))
	}
}

// TestSentAway: on a real stream it looks like a drain; the agent that comes back at once is refused once.
func TestSentAway(t *testing.T) {
	noneLeft(t)
	r := newRig(t, overMemory, table.Options{}, func(c *Config) { c.Nodes = func() int { return 0 } })
	r.publish(fwd.Update{Put: backends(1, 0, 3).Put})
	r.server.SetControllers([]string{"10.0.0.1:1", "10.0.0.2:1"})
	for i := range boundsOf(0, 2).begin {
		r.server.register(&session{node: fmt.Sprintf("other-%d", i), replica: false, since: time.Now().Add(time.Hour), stop: make(chan error, stopReasons)})
	}
	a := r.agent("a")
	eventually(t, "the table", func() bool { return a.matches(r.store) })
	now := time.Now().Add(settled)
	if r.server.surplus(now) != nil {
		t.Fatal("somebody is sent away at once")
	}
	run := r.server.surplus(now.Add(surplusLasts))
	if run == nil || run.node != "a" {
		t.Fatalf("%v is sent away", run)
	}
	run.stop <- errElsewhere()
	for _, when := range []string{"first", "again"} {
		if err := a.wait(); status.Code(err) != codes.Unavailable || !contains(err, "more than its share") {
			t.Errorf("%s: error %v", when, err)
		}
		r.server.mu.Lock()
		r.server.balance.sent["a"] = time.Now() // the moment was made up
		r.server.mu.Unlock()
		a.connect(r)
	}
	eventually(t, "the agent to be served again", func() bool { return r.store.Stats().Followers == 1 })
	a.close()
}
