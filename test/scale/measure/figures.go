package measure

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
)

// Plan says what to measure.
type Plan struct {
	// Agents are the numbers of agents, one run each; Watchers is up to how many of kube-proxy's watchers run beside.
	Agents   []int
	Watchers int
	// Services and Pods (of each Service) exist; a batch moves a Service from Batch Pods to as many others.
	Services, Pods, Batch int
	// LargeServices are in the large cluster, with as many Pods each.
	LargeServices int
	// Phase is how long Pods change at a rate.
	Phase time.Duration
	// Insecure leaves out TLS and tokens.
	Insecure bool
	// Controller is the path of fairlead-controller; empty is bin/ of the repository.
	Controller string
	// Profile, if set, is where a profile of the controller's processor time goes, while changes come one by one.
	Profile string
	// Progress gets a line for each phase.
	Progress io.Writer
}

// FullPlan is what the document shows, QuickPlan tries whether everything works.
func FullPlan() Plan {
	return Plan{Agents: []int{100, 1000, 5000}, Watchers: 1000, Services: 100, Pods: 10, Batch: 100, LargeServices: 10_000, Phase: 20 * time.Second}
}

// QuickPlan is a look, not a measurement.
func QuickPlan() Plan {
	return Plan{Agents: []int{100}, Watchers: 100, Services: 20, Pods: 5, Batch: 20, LargeServices: 200, Phase: 5 * time.Second}
}

// Figures are those of one number of agents. Processor times are of one core; a change is one endpoint of one Service that
// comes or goes.
type Figures struct {
	Agents int
	// Rate is how many changes a second were written.
	Rate float64
	// Connect is from the start of the agents' processes to the last of them current.
	Connect time.Duration
	// ConnectBytes is what an agent received by then, handshake and table.
	ConnectBytes float64
	// Lone are changes one by one, Stalled the same while one of a hundred agents is stopped, of the others.
	Lone, Stalled Changes
	// BatchWire and BatchMessage are bytes per change and node when Batch changes come in one revision, BatchCPU the
	// controller's time.
	BatchWire, BatchMessage float64
	BatchCPU                time.Duration
	// RawWrite is the time of writing as many bytes to a socket by itself.
	RawWrite time.Duration
	// Memory is what the controller's resident memory grew by per agent, EmptyMemory what it had before.
	Memory, EmptyMemory float64
	// Flood is what the controllers did while Pods changed as fast as the API server took it, without agents.
	Flood Flood
	// Warm is the reconnect to a second replica after kill -9, Cold the one to a successor that is started then.
	Warm, Cold Reconnect
	// Peer is what as many of kube-proxy's watchers cost; nil where they were not tried.
	Peer *Peer
}

// Changes are those of one phase.
type Changes struct {
	// Count were written, Took is from before the write of a Pod's status until the last agent had applied it, sorted; Lost ones
	// were not seen by all in time.
	Count, Lost int
	Took        []time.Duration
	// Written is how long the API server took to answer the writes, sorted; it is part of Took.
	Written []time.Duration
	// Wire and Message are bytes per change and node: what TCP delivered, and the revision messages alone.
	Wire, Message float64
	// Revisions per change and node: 1 where each change goes alone, less where changes share a revision.
	Revisions float64
	// Controller and APIServer are processor time per change, after taking away what both use while nothing changes; Agent is a simulated
	// agent's own per change. FromAPI are the bytes per change that the controller received from the API server.
	Controller, APIServer, Agent time.Duration
	FromAPI                      float64
}

// Flood is how fast changes go without agents.
type Flood struct {
	// Changes a second were written to the API server; Published a second came back as EndpointSlices and Endpoints.
	Changes, Published float64
	// Leader and Follower are processor time per change of the replica that publishes and of the one that does not.
	Leader, Follower time.Duration
}

// Reconnect is a kill -9 of the controller.
type Reconnect struct {
	// Took is from the kill until the last agent was current, Bytes what an agent received, handshake included; 0 is not known: not
	// all agents had followed the controller that was killed.
	Took  time.Duration
	Bytes float64
}

// Peer is what kube-proxy's watchers cost.
type Peer struct {
	Watchers int
	// Took is from before the write of a Pod's status until the EndpointSlice was with the last watcher, sorted.
	Took []time.Duration
	// Bytes are per change and watcher, APIServer processor time per change.
	Bytes     float64
	APIServer time.Duration
	// Ended is how many watches the API server closed meanwhile.
	Ended int
}

// Quantile returns the value that a share q of sorted values does not exceed; zero of none.
func Quantile[T cmp.Ordered](sorted []T, q float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func sorted(all []time.Duration) []time.Duration {
	slices.Sort(all)
	return all
}

func (p Plan) say(format string, args ...any) {
	fmt.Fprintf(p.Progress, format+"\n", args...)
}
