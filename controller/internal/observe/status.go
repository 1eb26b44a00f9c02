package observe

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Status is what is known at one moment.
type Status struct {
	Epoch    uint64 `json:"epoch"`
	Revision uint64 `json:"revision"`
	// Everywhere is the revision up to which all connected nodes hold everything; Revision if none is connected.
	Everywhere uint64 `json:"everywhere"`
	// Connected nodes; Current ones hold everything published, Failing ones reported an error last.
	Connected int `json:"connected"`
	Current   int `json:"current"`
	Failing   int `json:"failing"`
	// Missing are Nodes whose agent is not connected.
	Missing int `json:"missing"`
	// LagSeconds is the greatest of the connected nodes'.
	LagSeconds float64 `json:"lagSeconds"`
	// Watched is how many objects of each resource this replica watches at the API server: one watch each.
	Watched map[string]int `json:"watched"`
	// Nodes are sorted by name.
	Nodes []NodeStatus `json:"nodes"`
}

// NodeStatus is what is known of one node.
type NodeStatus struct {
	Node      string `json:"node"`
	Connected bool   `json:"connected"`
	// Since is when it connected, or when the stream ended.
	Since time.Time `json:"since"`
	// Holds is the revision up to which its kernel holds everything that concerns it, as of its last report on this or the
	// last stream; 0 before the first.
	Holds   uint64 `json:"holds"`
	Current bool   `json:"current"`
	// LagSeconds is the age of the oldest revision that was sent and is not yet held.
	LagSeconds float64 `json:"lagSeconds"`
	// Error is why its kernel refused the last revision; empty if it did not.
	Error   string `json:"error,omitempty"`
	Mode    string `json:"mode,omitempty"`
	Version string `json:"version,omitempty"`
	Remote  string `json:"remote,omitempty"`
	// Exists: the API server has a Node of this name.
	Exists bool `json:"exists"`
}

// Status returns the present state.
func (o *Observer) Status() Status {
	s := Status{Epoch: o.tables.Epoch(), Revision: o.tables.Revision(), Watched: o.watched()}
	s.Everywhere = s.Revision
	now := o.now()
	exist := map[string]bool{}
	for _, name := range o.exist() {
		exist[name] = true
	}
	o.mu.Lock()
	for name, n := range o.nodes {
		st := n.status(name, s.Revision, now)
		st.Exists = exist[name]
		delete(exist, name)
		s.Nodes = append(s.Nodes, st)
	}
	o.mu.Unlock()
	for name := range exist {
		s.Nodes = append(s.Nodes, NodeStatus{Node: name, Exists: true})
	}
	s.count()
	return s
}

// count sorts the nodes, and sums them up.
func (s *Status) count() {
	slices.SortFunc(s.Nodes, func(a, b NodeStatus) int { return cmp.Compare(a.Node, b.Node) })
	s.Connected, s.Current, s.Failing, s.Missing, s.LagSeconds = 0, 0, 0, 0, 0
	for _, n := range s.Nodes {
		if !n.Connected {
			if n.Exists {
				s.Missing++
			}
			continue
		}
		s.Connected++
		s.Everywhere = min(s.Everywhere, n.Holds)
		s.LagSeconds = max(s.LagSeconds, n.LagSeconds)
		if n.Current {
			s.Current++
		}
		if n.Error != "" {
			s.Failing++
		}
	}
}

// Merge joins what several replicas know, of which there is one or more: each node is as the replica has it that its agent
// follows, else as the one that heard of it last. Epoch and Revision are the first replica's, since revisions of different
// ones do not compare; Current says whether a node holds all that its own replica has.
func Merge(replicas []Status) Status {
	merged := replicas[0]
	known := map[string]NodeStatus{}
	for _, s := range replicas {
		for _, n := range s.Nodes {
			have, ok := known[n.Node]
			if !ok || n.Connected && !have.Connected || n.Connected == have.Connected && n.Since.After(have.Since) {
				known[n.Node] = n
			}
		}
	}
	merged.Nodes = slices.Collect(maps.Values(known))
	merged.count()
	return merged
}

func (n *node) status(name string, revision uint64, now time.Time) NodeStatus {
	st := NodeStatus{
		Node: name, Connected: n.connected, Since: n.since, Holds: n.applied, Error: n.failure,
		Mode: n.agent.Mode, Version: n.agent.Version, Remote: n.agent.Remote,
	}
	if n.connected {
		st.Holds = n.through()
		st.Current = st.Holds >= revision
		st.LagSeconds = n.lag(now).Seconds()
	}
	return st
}

// Write prints a status for people.
func (s Status) Write(w io.Writer, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "revision %d of epoch %d: held by %d of %d connected agents; %d nodes have no agent connected\n",
		s.Revision, s.Epoch, s.Current, s.Connected, s.Missing)
	fmt.Fprintf(t, "watched at the API server: %s\n\n", s.watched())
	fmt.Fprintln(t, "NODE\tSTATE\tSINCE\tHOLDS\tLAG\tMODE\tVERSION\tADDRESS\tERROR")
	for _, n := range s.Nodes {
		since := "-"
		if !n.Since.IsZero() {
			since = now.Sub(n.Since).Round(time.Second).String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%v\t%s\t%s\t%s\t%s\n", n.Node, n.state(), since, n.Holds,
			time.Duration(n.LagSeconds*float64(time.Second)).Round(time.Millisecond), n.Mode, n.Version, n.Remote, n.Error)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}

func (s Status) watched() string {
	words := make([]string, 0, len(s.Watched))
	for _, resource := range slices.Sorted(maps.Keys(s.Watched)) {
		words = append(words, fmt.Sprintf("%d %s", s.Watched[resource], resource))
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

func (n NodeStatus) state() string {
	switch {
	case n.Since.IsZero():
		return "no agent yet"
	case !n.Exists:
		return "no such Node"
	case !n.Connected:
		return "away"
	case n.Error != "":
		return "failing"
	case n.Current:
		return "current"
	}
	return "behind"
}
