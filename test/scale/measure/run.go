package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/test/scale/meter"
	"github.com/fairlead/fairlead/test/scale/stage"
	"github.com/fairlead/fairlead/test/scale/swarm"
)

const (
	// perProcess is how many agents or watchers one process holds at most.
	perProcess = 250
	firstPort  = 7443
	secondPort = 7463
	// fullRate is how many changes a second there are up to manyAgents; beyond, the product of both stays.
	fullRate   = 20
	manyAgents = 1000
	// comeback is how much longer all agents may take to be current for each that there is: handshakes fail where the cores are busy.
	comeback = 100 * time.Millisecond
	// settle is how long a process has to come to rest.
	settle = 5 * time.Second
)

// Run measures each number of agents, on a new API server each. What was measured before an error is returned with it.
func Run(ctx context.Context, plan Plan) ([]Figures, error) {
	var all []Figures
	for _, n := range plan.Agents {
		f, err := measure(ctx, plan, n)
		if err != nil && f.Warm.Took == 0 {
			return all, fmt.Errorf("%d agents: %w", n, err)
		}
		all = append(all, f) // without kube-proxy's watchers if they are more than the machine carries
		if err != nil {
			return all, fmt.Errorf("%d agents: %w", n, err)
		}
	}
	return all, nil
}

// run is one number of agents.
type run struct {
	*stage.Stage
	plan          Plan
	figures       Figures
	first, second *stage.Controller
	// many are the processes of all agents but those that few holds, which are to be stopped: one of a hundred.
	many []*stage.Herd
	few  *stage.Herd
	// idleController and idleAPI are shares of a core while nothing changes.
	idleController, idleAPI float64
	api                     int
}

func measure(ctx context.Context, plan Plan, n int) (Figures, error) {
	r := &run{plan: plan}
	r.figures.Agents, r.figures.Rate = n, min(fullRate, fullRate*manyAgents/float64(n))
	err := r.play(ctx, fmt.Sprintf("%d agents", n), n, []phase{
		{"controllers", r.start},
		{"flood", r.floodOnce},
		{"connect", r.connect},
		{"idle", r.idle},
		{"changes one by one", r.lone},
		{"batches", r.batches},
		{"stalled agents", r.stalled},
		{"raw writes", r.raw},
		{"reconnect", r.reconnect},
		{"kube-proxy's watchers", r.peer},
	})
	return r.figures, err
}

// phase is a part of a run.
type phase struct {
	name string
	do   func(context.Context) error
}

// play does all phases on a new API server, and ends everything. Its folder stays where one fails. name is for people.
func (r *run) play(ctx context.Context, name string, nodes int, phases []phase) (err error) {
	dir, err := os.MkdirTemp("", "fairlead-fanout-")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	p := r.plan
	r.Stage, err = stage.New(ctx, stage.Config{
		Dir: dir, Nodes: nodes, Services: p.Services, Pods: p.Pods, Insecure: p.Insecure, Controller: p.Controller, Progress: p.Progress,
	})
	if err != nil {
		return err
	}
	defer func() {
		r.end()
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%w (logs are in %s)", err, dir)
		}
	}()
	if r.api, err = meter.Find("kube-apiserver", dir); err != nil {
		return err
	}
	for _, phase := range phases {
		began := time.Now()
		if err := phase.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", phase.name, err)
		}
		p.say("%s: %s took %.1f s", name, phase.name, time.Since(began).Seconds())
	}
	return nil
}

// end kills everything that runs.
func (r *run) end() {
	r.leave()
	for _, c := range []*stage.Controller{r.first, r.second} {
		if c != nil {
			c.Kill()
		}
	}
	_ = r.Close() // its processes are killed
}

// leave kills the agents.
func (r *run) leave() {
	for _, h := range r.herds() {
		h.Kill()
	}
	r.many, r.few = nil, nil
}

func (r *run) herds() []*stage.Herd {
	if r.few == nil {
		return r.many
	}
	return append([]*stage.Herd{r.few}, r.many...)
}

// start starts two replicas, the one that leads first, and makes the Pods of the batches.
func (r *run) start(ctx context.Context) error {
	const service = "batch"
	if err := r.MakeService(ctx, service, stage.Service(r.plan.Services)); err != nil {
		return err
	}
	for side := range 2 {
		for i := range r.plan.Batch {
			p := stage.Pod{Service: r.plan.Services + side, Number: i}
			if err := r.MakePod(ctx, p, stage.Service(p.Service)); err != nil {
				return err
			}
		}
	}
	var err error
	if r.first, err = r.controller(firstPort); err != nil {
		return err
	}
	if err := r.first.Ready(ctx); err != nil {
		return err
	}
	if err := stage.Until(ctx, "first writes", func() error {
		n, err := r.first.Metric(ctx, "fairlead_publish_syncs_total")
		if err == nil && n < float64(r.plan.Services) {
			return fmt.Errorf("%.0f writes", n)
		}
		return err
	}); err != nil {
		return err
	}
	if r.second, err = r.controller(secondPort); err != nil {
		return err
	}
	return r.second.Ready(ctx)
}

// controller starts a replica without the brake, since what a measurement takes away is meant, and one that keeps all agents: the
// other one is there for the failover alone.
func (r *run) controller(port uint16) (*stage.Controller, error) {
	flags := []string{"--brake-share", "1", "--balance=false"}
	if r.plan.Profile != "" {
		flags = append(flags, "--profiling")
	}
	return r.StartController(port, flags...)
}

// connect starts the agents, first those that stall later, and waits until all are current.
func (r *run) connect(ctx context.Context) error {
	if err := rest(ctx); err != nil {
		return err
	}
	empty, err := meter.Resident(r.first.Pid())
	if err != nil {
		return err
	}
	cfg, few := r.swarm(), r.fewest()
	if err := r.Tokens(ctx, r.figures.Agents); err != nil {
		return err
	}
	began := time.Now()
	if r.few, err = r.StartSwarm(ctx, 0, few, cfg); err != nil {
		return err
	}
	for at := few; at < r.figures.Agents; at += perProcess {
		h, err := r.StartSwarm(ctx, at, min(perProcess, r.figures.Agents-at), cfg)
		if err != nil {
			return err
		}
		r.many = append(r.many, h)
	}
	st, err := r.current(ctx, 0)
	if err != nil {
		return err
	}
	r.figures.Connect = time.UnixMicro(st.LastCurrent).Sub(began)
	r.figures.ConnectBytes = float64(st.WireBytes) / float64(r.figures.Agents)
	if err := rest(ctx); err != nil {
		return err
	}
	full, err := meter.Resident(r.first.Pid())
	r.figures.EmptyMemory = float64(empty)
	r.figures.Memory = float64(full-empty) / float64(r.figures.Agents)
	return err
}

// fewest is how many agents are one of a hundred.
func (r *run) fewest() int { return max(1, r.figures.Agents/100) }

// swarm is the configuration of agents that all begin with the first replica.
func (r *run) swarm() swarm.Config {
	return swarm.Config{Controllers: []string{r.first.GRPC, r.second.GRPC}}
}

// current waits until all agents are, and there have been so many streams.
func (r *run) current(ctx context.Context, streams int64) (swarm.State, error) {
	var sum swarm.State
	err := stage.UntilWithin(ctx, max(2*time.Minute, time.Duration(r.figures.Agents)*comeback), "agents to be current", func() error {
		var err error
		if sum, err = states(ctx, r.herds()); err != nil {
			return err
		}
		if sum.Current < sum.Agents || sum.Streams < streams {
			return fmt.Errorf("%d of %d are; streams ended by %v", sum.Current, sum.Agents, sum.Failures)
		}
		return nil
	})
	return sum, err
}

// states adds up what processes have seen; Applied is left out.
func states(ctx context.Context, herds []*stage.Herd) (swarm.State, error) {
	sum := swarm.State{Failures: map[string]int{}}
	for _, h := range herds {
		var st swarm.State
		if err := h.Ask(ctx, swarm.StatePath, &st); err != nil {
			return sum, err
		}
		sum.Agents += st.Agents
		sum.Current += st.Current
		sum.Streams += st.Streams
		sum.Revisions += st.Revisions
		sum.MessageBytes += st.MessageBytes
		sum.WireBytes += st.WireBytes
		sum.LastCurrent = max(sum.LastCurrent, st.LastCurrent)
		sum.Refused += st.Refused
		for text, n := range st.Failures {
			sum.Failures[text] += n
		}
	}
	if sum.Refused > 0 {
		return sum, errors.New("an agent refused a revision: its digest differs")
	}
	return sum, nil
}

// rest waits until processes have come to rest.
func rest(ctx context.Context) error { return pause(ctx, settle) }

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
