package observe

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Tables are what the nodes must hold.
type Tables interface {
	Epoch() uint64
	// Revision is the number of the last one.
	Revision() uint64
	// Table returns the table of a node and its revision.
	Table(node string) (*fwd.Table, uint64, error)
}

// Config of an Observer. Tables and Registry are required.
type Config struct {
	Tables   Tables
	Registry prometheus.Registerer
	// Watched is how many objects of each resource this replica watches at the API server, by the resource's name; nil is
	// none. It may take time in proportion to their number.
	Watched func() map[string]int
	// Nodes are the names of the Nodes that there are, each of which should have an agent; nil is none.
	Nodes func() []string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Agent describes an agent that connected.
type Agent struct {
	Node, Version, Mode, Remote string
	// Sequence tells the newer of two streams of one node: the higher.
	Sequence uint64
	// Position: all that concerns the node up to revision through has been sent, the last of it numbered last. It is
	// called with locks held and must not block.
	Position func() (through, last uint64)
}

// Observer collects. It is safe for concurrent use; nothing in it blocks but the waits.
type Observer struct {
	tables  Tables
	watched func() map[string]int
	exist   func() []string
	now     func() time.Time
	metrics *metrics

	mu sync.Mutex // guards the rest and all nodes
	// nodes holds every node that ever connected, until Forget.
	nodes   map[string]*node
	waiters map[*waiter]struct{}
	// sampled counts the waiters that Published made.
	sampled int
}

// node is what is known of one node.
type node struct {
	agent     Agent
	connected bool
	// forgotten: the node no longer exists; it is dropped with its stream.
	forgotten bool
	// since is when the present state, connected or not, began.
	since time.Time
	// applied is the highest revision that the agent said to hold on this stream; after its end, all that it held by then.
	applied uint64
	// outstanding are the revisions sent and not yet applied, oldest first, at most maxOutstanding.
	outstanding []sent
	// failure is the reason of the last report, empty after a success.
	failure  string
	reported time.Time
}

type sent struct {
	number uint64
	cause  time.Time // zero: unknown
	at     time.Time
}

// maxOutstanding bounds what is remembered of an agent that reads and never reports. Later ones are left out of the
// histograms.
const maxOutstanding = 64

// New returns an Observer whose metrics are registered.
func New(cfg Config) (*Observer, error) {
	if cfg.Tables == nil || cfg.Registry == nil {
		return nil, errors.New("observe config: Tables and Registry are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Watched == nil {
		cfg.Watched = func() map[string]int { return nil }
	}
	if cfg.Nodes == nil {
		cfg.Nodes = func() []string { return nil }
	}
	o := &Observer{
		tables: cfg.Tables, watched: cfg.Watched, exist: cfg.Nodes, now: cfg.Now, metrics: newMetrics(), nodes: map[string]*node{}, waiters: map[*waiter]struct{}{},
	}
	for _, c := range append(o.metrics.all(), &gauges{observer: o}) {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return o, nil
}

// Connected notes an accepted stream. What becomes of it goes to the Session.
func (o *Observer) Connected(a Agent) *Session {
	o.metrics.streams.Inc()
	o.mu.Lock()
	defer o.mu.Unlock()
	if before, ok := o.nodes[a.Node]; !ok || before.agent.Sequence < a.Sequence {
		o.nodes[a.Node] = &node{agent: a, connected: true, since: o.now()}
	}
	return &Session{observer: o, node: a.Node, sequence: a.Sequence}
}

// Forget drops a node that no longer exists. If its agent is still connected, it is dropped when the stream ends.
func (o *Observer) Forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n, ok := o.nodes[name]; ok && n.connected {
		n.forgotten = true
	} else {
		delete(o.nodes, name)
	}
	for w := range o.waiters {
		o.resolve(w, name)
	}
}

// through is the revision up to which the node's kernel holds everything that concerns it. The node is connected.
func (n *node) through() uint64 {
	through, last := n.agent.Position()
	if last > 0 && n.applied >= last {
		return through
	}
	return n.applied
}

// lag is the age of the oldest revision that the node does not hold, counted from its cause where that is known; 0 if it
// holds all that was sent.
func (n *node) lag(now time.Time) time.Duration {
	if len(n.outstanding) == 0 {
		return 0
	}
	oldest := n.outstanding[0]
	if oldest.cause.IsZero() {
		return now.Sub(oldest.at)
	}
	return now.Sub(oldest.cause)
}
