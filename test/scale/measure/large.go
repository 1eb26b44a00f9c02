package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/test/scale/meter"
	"github.com/fairlead/fairlead/test/scale/stage"
	"github.com/fairlead/fairlead/test/scale/swarm"
)

// largeNodes is how many Nodes the Pods of a large cluster are on.
const largeNodes = 100

// Large is what controllers take that hold a large cluster, with one agent.
type Large struct {
	// Services have Pods endpoints each.
	Services, Pods int
	// Published is from the start of the first controller that there ever was until it had written every Service's endpoints.
	Published time.Duration
	// Ready is from the start of a controller that finds all objects there until it lets agents in, Served until an agent that
	// connects then holds the table. StartCPU is the controller's processor time for that, ServedBytes what the agent received.
	Ready, Served, StartCPU time.Duration
	ServedBytes             float64
	// Memory is the leader's resident memory at rest, FollowerMemory that of a replica that follows it, and Peak the most that
	// the leader ever had, the flood included.
	Memory, FollowerMemory, Peak float64
	// Flood is of changes as fast as the API server takes them.
	Flood Flood
}

// RunLarge fills an API server, starts a controller on it twice, and floods it.
func RunLarge(ctx context.Context, plan Plan) (Large, error) {
	plan.Services = plan.LargeServices
	r, l := &run{plan: plan}, &Large{Services: plan.Services, Pods: plan.Pods}
	name := fmt.Sprintf("%d Services", plan.Services)
	if err := r.play(ctx, name, largeNodes, []phase{
		{"first publication", func(ctx context.Context) error { return r.publish(ctx, l) }},
		{"cold start", func(ctx context.Context) error { return r.coldStart(ctx, l) }},
		{"flood", func(ctx context.Context) error { return r.largeFlood(ctx, l) }},
	}); err != nil {
		return Large{}, fmt.Errorf("%s: %w", name, err)
	}
	return *l, nil
}

// publish starts the first controller, which finds no EndpointSlices, and ends it when it has written them.
func (r *run) publish(ctx context.Context, l *Large) error {
	began := time.Now()
	var err error
	if r.first, err = r.controller(firstPort); err != nil {
		return err
	}
	for last := -1.0; ; { // as long as it makes progress
		var done float64
		err := stage.Until(ctx, "endpoints to be written", func() (err error) {
			if done, err = r.first.Metric(ctx, "fairlead_publish_syncs_total"); err == nil && done <= last {
				err = fmt.Errorf("%.0f writes, %.0f before", done, last)
			}
			return err
		})
		if err != nil {
			return err
		}
		if last = done; done >= float64(2*l.Services) { // EndpointSlices and Endpoints
			break
		}
	}
	l.Published = time.Since(began)
	r.first.Kill()
	return nil
}

// coldStart starts a controller that finds everything there, an agent, and a replica.
func (r *run) coldStart(ctx context.Context, l *Large) error {
	if err := r.Tokens(ctx, 1); err != nil {
		return err
	}
	began := time.Now()
	var err error
	if r.first, err = r.controller(firstPort); err != nil {
		return err
	}
	if err := r.first.Ready(ctx); err != nil {
		return err
	}
	l.Ready = time.Since(began)
	if r.few, err = r.StartSwarm(ctx, 0, 1, swarm.Config{Controllers: []string{r.first.GRPC}}); err != nil {
		return err
	}
	st, err := r.current(ctx, 0)
	if err != nil {
		return err
	}
	l.Served, l.ServedBytes = time.UnixMicro(st.LastCurrent).Sub(began), float64(st.WireBytes)
	if l.StartCPU, err = meter.CPU(r.first.Pid()); err != nil {
		return err
	}
	if r.second, err = r.controller(secondPort); err != nil {
		return err
	}
	return r.second.Ready(ctx)
}

// largeFlood is the flood, and what memory there is before and after it.
func (r *run) largeFlood(ctx context.Context, l *Large) error {
	if err := pause(ctx, 4*settle); err != nil { // Go's runtime gives memory back
		return err
	}
	leader, errLeader := meter.Resident(r.first.Pid())
	follower, errFollower := meter.Resident(r.second.Pid())
	if err := errors.Join(errLeader, errFollower); err != nil {
		return err
	}
	l.Memory, l.FollowerMemory = float64(leader), float64(follower)
	if err := r.flood(ctx); err != nil {
		return err
	}
	l.Flood = r.figures.Flood
	peak, err := meter.Peak(r.first.Pid())
	l.Peak = float64(peak)
	return err
}
