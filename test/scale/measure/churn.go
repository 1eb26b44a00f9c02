package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/test/scale/meter"
	"github.com/fairlead/fairlead/test/scale/stage"
	"github.com/fairlead/fairlead/test/scale/swarm"
)

// applyWithin is how long the last agent may take to apply the last change of a phase before what is missing counts as lost.
const applyWithin = 30 * time.Second

// write is one change that was written: a backend that comes or goes.
type write struct {
	address string
	ready   bool
	began   time.Time
}

// cost is what counters said at one moment.
type cost struct {
	at              time.Time
	controller, api time.Duration
	fromAPI         int64
	agents          swarm.State
	agentsCPU       time.Duration
}

func (r *run) cost(ctx context.Context) (c cost, err error) {
	if c.agents, err = states(ctx, r.herds()); err != nil {
		return c, err
	}
	if c.fromAPI, err = meter.ReceivedFrom(ctx, r.first.Pid(), 6443); err != nil {
		return c, err
	}
	if c.controller, err = meter.CPU(r.first.Pid()); err != nil {
		return c, err
	}
	for _, h := range r.herds() {
		own, err := meter.CPU(h.Pid())
		if err != nil {
			return c, err
		}
		c.agentsCPU += own
	}
	c.api, err = meter.CPU(r.api)
	c.at = time.Now()
	return c, err
}

// idle measures what controller and API server use while nothing changes.
func (r *run) idle(ctx context.Context) error {
	before, err := r.cost(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, max(settle, r.plan.Phase/2)); err != nil {
		return err
	}
	after, err := r.cost(ctx)
	during := after.at.Sub(before.at).Seconds()
	r.idleController = (after.controller - before.controller).Seconds() / during
	r.idleAPI = (after.api - before.api).Seconds() / during
	return err
}

// block is how many Pods become unready before the first of them becomes ready again: what goes and comes back within one
// round of the controller is no change.
const block = 20

// flipOf is the n-th change: Pods of a block become unready, then ready again, then those of the next block.
func (p Plan) flipOf(n int) (pod stage.Pod, ready bool) {
	i := n/(2*block)*block + n%block
	return stage.Pod{Service: i % p.Services, Number: i / p.Services % p.Pods}, n%(2*block) >= block
}

// flip writes changes for some time, whole blocks of them.
func (r *run) flip(ctx context.Context, rate float64) ([]write, []time.Duration, error) {
	var writes []write
	var written []time.Duration
	ticker := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer ticker.Stop()
	blocks := max(1, int(r.plan.Phase.Seconds()*rate)/(2*block))
	for n := range blocks * 2 * block {
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-ticker.C:
		}
		p, ready := r.plan.flipOf(n)
		w := write{address: p.Address().String(), ready: ready, began: time.Now()}
		if err := r.SetReady(ctx, p, ready); err != nil {
			return nil, nil, err
		}
		writes, written = append(writes, w), append(written, time.Since(w.began))
	}
	return writes, sorted(written), nil
}

// lone measures changes one by one, and takes the profile meanwhile.
func (r *run) lone(ctx context.Context) error {
	var group errgroup.Group
	if r.plan.Profile != "" {
		group.Go(func() error {
			profile, err := r.first.Profile(ctx, r.plan.Phase)
			if err != nil {
				return err
			}
			return os.WriteFile(r.plan.Profile, profile, 0o600)
		})
	}
	var err error
	r.figures.Lone, err = r.changes(ctx, r.herds())
	return errors.Join(err, group.Wait())
}

// changes flips Pods and looks when the agents of some processes have applied them.
func (r *run) changes(ctx context.Context, watched []*stage.Herd) (Changes, error) {
	var c Changes
	if _, err := collect(ctx, watched, nil); err != nil { // forget what was
		return c, err
	}
	before, err := r.costOf(ctx, watched)
	if err != nil {
		return c, err
	}
	writes, written, err := r.flip(ctx, r.figures.Rate)
	if err != nil {
		return c, err
	}
	c.Count, c.Written = len(writes), written
	took, err := collect(ctx, watched, writes)
	if err != nil {
		return c, err
	}
	c.Took, c.Lost = sorted(took), len(writes)-len(took)
	after, err := r.costOf(ctx, watched)
	if err != nil {
		return c, err
	}
	each, during := float64(c.Count), after.at.Sub(before.at).Seconds()
	perNode := each * float64(after.agents.Agents)
	c.Wire = float64(after.agents.WireBytes-before.agents.WireBytes) / perNode
	c.Message = float64(after.agents.MessageBytes-before.agents.MessageBytes) / perNode
	c.Revisions = float64(after.agents.Revisions-before.agents.Revisions) / perNode
	c.Controller = over(after.controller-before.controller, r.idleController*during, each)
	c.APIServer = over(after.api-before.api, r.idleAPI*during, each)
	c.Agent = over(after.agentsCPU-before.agentsCPU, 0, perNode)
	c.FromAPI = float64(after.fromAPI-before.fromAPI) / each
	return c, nil
}

// costOf is cost, with the agents of some processes only: one that is stopped cannot be asked.
func (r *run) costOf(ctx context.Context, watched []*stage.Herd) (cost, error) {
	many, few := r.many, r.few
	defer func() { r.many, r.few = many, few }()
	r.many, r.few = watched, nil
	return r.cost(ctx)
}

// over is the share of a time above what is used anyway, in seconds, per change.
func over(spent time.Duration, idle, changes float64) time.Duration {
	return time.Duration((spent.Seconds() - idle) / changes * float64(time.Second))
}

// collect waits until all processes have applied all writes, and returns how long each took: those of the same address and
// state are told apart by their order. Without writes it drops what there is.
func collect(ctx context.Context, herds []*stage.Herd, writes []write) ([]time.Duration, error) {
	last := make([]int64, len(writes))
	counts := make([]int, len(writes))
	seen := make([]int, len(herds))
	deadline := time.Now().Add(applyWithin)
	next := make([]map[swarm.Applied]int, len(herds)) // how many of this address and state a process has told
	for h := range herds {
		next[h] = map[swarm.Applied]int{}
	}
	order := map[swarm.Applied][]int{}
	for i, w := range writes {
		key := swarm.Applied{Address: w.address, Present: w.ready}
		order[key] = append(order[key], i)
	}
	err := stage.Until(ctx, "changes to be applied", func() error {
		for h, herd := range herds {
			var st swarm.State
			if err := herd.Ask(ctx, swarm.StatePath, &st); err != nil {
				return err
			}
			for _, a := range st.Applied {
				key := swarm.Applied{Address: a.Address, Present: a.Present}
				if at := next[h][key]; at < len(order[key]) {
					i := order[key][at]
					last[i] = max(last[i], a.At)
					counts[i]++
					seen[h]++
				}
				next[h][key]++
			}
		}
		if slices.Min(append(seen, len(writes))) < len(writes) && time.Now().Before(deadline) {
			return fmt.Errorf("of %d changes the processes have %v", len(writes), seen)
		}
		return nil
	})
	var took []time.Duration
	for i, w := range writes {
		if counts[i] == len(herds) {
			took = append(took, time.UnixMicro(last[i]).Sub(w.began))
		}
	}
	return took, err
}

// batches moves a Service to other Pods and back: one revision with twice as many changes as a batch has.
func (r *run) batches(ctx context.Context) error {
	const moves = 10
	before, err := r.cost(ctx)
	if err != nil {
		return err
	}
	for n := range moves {
		if err := r.Select(ctx, "batch", stage.Service(r.plan.Services+1-n%2)); err != nil {
			return err
		}
		if err := pause(ctx, max(time.Second/4, time.Duration(float64(time.Second)/r.figures.Rate))); err != nil {
			return err
		}
	}
	var after cost
	quiet := errors.New("still arriving")
	if err := stage.Until(ctx, "batches to be applied", func() error {
		last := after.agents.MessageBytes
		if after, err = r.cost(ctx); err != nil {
			return err
		}
		if cmp.Compare(last, after.agents.MessageBytes) != 0 {
			return quiet
		}
		return nil
	}); err != nil {
		return err
	}
	changes := float64(moves * 2 * r.plan.Batch)
	perNode := changes * float64(r.figures.Agents)
	r.figures.BatchWire = float64(after.agents.WireBytes-before.agents.WireBytes) / perNode
	r.figures.BatchMessage = float64(after.agents.MessageBytes-before.agents.MessageBytes) / perNode
	r.figures.BatchCPU = over(after.controller-before.controller, r.idleController*after.at.Sub(before.at).Seconds(), changes)
	return nil
}
