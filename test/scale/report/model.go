package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/test/scale/measure"
)

const (
	// modelRate is the changes a second, and modelShare of a core the processor time per replica, that replicas are counted for.
	modelRate  = 20
	modelShare = 0.5
)

// cost is the model: what N agents cost. Times are processor time of one core.
type cost struct {
	// change is what a change costs by itself, node what each node adds; batch is the latter per change where many come in one
	// revision.
	change, node, batch time.Duration
	// wire are bytes per change and node, memory bytes per agent beside empty ones, resume bytes per agent that comes back.
	wire, memory, empty, resume float64
	// comeback is how long one agent more makes a reconnect, on the machine that measured, agents' own work included.
	comeback time.Duration
}

// fit puts a line through the runs with the fewest agents, where changes share revisions least. What needs no line is taken from
// the run with the most, or is the most that a run has shown: what machines too slow for their agents save by sharing revisions is
// not counted on.
func fit(all []measure.Figures) (cost, bool) {
	if len(all) < 2 {
		return cost{}, false
	}
	runs := slices.SortedFunc(slices.Values(all), func(a, b measure.Figures) int { return a.Agents - b.Agents })
	low, next, high := runs[0], runs[1], runs[len(runs)-1]
	if low.Agents == next.Agents {
		return cost{}, false
	}
	c := cost{
		node:   (next.Lone.Controller - low.Lone.Controller) / time.Duration(next.Agents-low.Agents),
		memory: high.Memory, empty: high.EmptyMemory, comeback: high.Warm.Took / time.Duration(high.Agents),
	}
	for _, f := range runs {
		c.batch, c.wire, c.resume = max(c.batch, perNode(f.BatchCPU, f)), max(c.wire, f.Lone.Wire), max(c.resume, f.Warm.Bytes)
	}
	c.change = max(0, low.Lone.Controller-c.node*time.Duration(low.Agents))
	return c, c.node > 0
}

// replicas is how many are needed for a rate of changes within a share of a core each.
func (c cost) replicas(agents int) int {
	left := modelShare - modelRate*c.change.Seconds()
	if left <= 0 {
		return 0
	}
	return max(1, int(math.Ceil(modelRate*c.node.Seconds()*float64(agents)/left)))
}

// model carries the figures to more agents than were measured.
func model(all []measure.Figures) table {
	t := table{
		title: "Cost model",
		head: []string{
			"agents", "bytes per change", fmt.Sprintf("at %d changes a second", modelRate), "cores for that", "replicas", "agents each",
			"changes a second on one core, one by one", "in batches", "memory of all replicas", "bytes to resume all", "failover of one replica",
		},
	}
	c, ok := fit(all)
	if !ok {
		t.text = "Not fitted: it takes two numbers of agents, and a difference between them that is more than noise."
		return t
	}
	t.text = fmt.Sprintf("A line through the two runs with the fewest agents: controller %s per change + %s per change and node (%s in batches), %s per change and node,\n"+
		"%s memory + %s per agent. Replicas: each uses at most %.1f of a core at %d changes a second, in revisions of one change each; under load changes share revisions, so that\n"+
		"this is where latency begins to grow, not where it stops. Failover: all agents of one replica, at %s each as measured, their own work included.",
		span(c.change), micros(c.node), micros(c.batch), bytes(c.wire), bytes(c.empty), bytes(c.memory), modelShare, modelRate, span(c.comeback))
	for _, n := range []int{1000, 5000, 15_000, 100_000} {
		replicas := c.replicas(n)
		if replicas == 0 {
			continue
		}
		share := (n + replicas - 1) / replicas
		each := c.change.Seconds() + c.node.Seconds()*float64(n)
		batched := c.change.Seconds()/float64(2*measure.FullPlan().Batch) + c.batch.Seconds()*float64(n)
		t.rows = append(t.rows, []string{
			number(n), bytes(c.wire * float64(n)), bytes(c.wire*float64(n)*modelRate) + "/s", fmt.Sprintf("%.2f", each*modelRate), fmt.Sprint(replicas), number(share),
			fmt.Sprintf("%.0f", 1/each), fmt.Sprintf("%.0f", 1/batched),
			bytes(c.empty*float64(replicas) + c.memory*float64(n)), bytes(c.resume * float64(n)), span(c.comeback * time.Duration(share)),
		})
	}
	return t
}
