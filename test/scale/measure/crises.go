package measure

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/test/scale/meter"
	"github.com/fairlead/fairlead/test/scale/stage"
)

// stalled measures changes while one of a hundred agents is stopped. These are started anew afterwards: who was stopped for
// long goes on with another replica, and the next phases want all on one.
func (r *run) stalled(ctx context.Context) error {
	if err := syscall.Kill(r.few.Pid(), syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop agents: %w", err)
	}
	changes, err := r.changes(ctx, r.many)
	r.figures.Stalled = changes
	r.few.Kill()
	if err != nil {
		return err
	}
	if r.few, err = r.StartSwarm(ctx, 0, r.fewest(), r.swarm()); err != nil {
		return err
	}
	_, err = r.current(ctx, 0)
	return err
}

// reconnect kills the controller that all agents follow, while a warm replica is there; then that one, and starts another.
func (r *run) reconnect(ctx context.Context) error {
	var err error
	if r.figures.Warm, err = r.kill(ctx, r.first, func() error { return nil }); err != nil {
		return err
	}
	r.figures.Cold, err = r.kill(ctx, r.second, func() (err error) {
		r.first, err = r.controller(firstPort)
		return err
	})
	return err
}

// kill kills a controller, calls then, and waits until all agents follow another one.
func (r *run) kill(ctx context.Context, c *stage.Controller, then func() error) (Reconnect, error) {
	before, err := states(ctx, r.herds())
	if err != nil {
		return Reconnect{}, err
	}
	followed, err := c.Metric(ctx, "fairlead_agents_connected") // fewer than all where the machine was too slow for a handshake
	if err != nil {
		return Reconnect{}, err
	}
	began := time.Now()
	c.Kill()
	if err := then(); err != nil {
		return Reconnect{}, err
	}
	after, err := r.current(ctx, before.Streams+int64(followed))
	if err != nil {
		return Reconnect{}, err
	}
	back := Reconnect{Took: time.UnixMicro(after.LastCurrent).Sub(began)}
	if int(followed) == after.Agents { // others' connections have older bytes
		back.Bytes = float64(after.WireBytes) / followed
	}
	return back, nil
}

// floodWriters is how many writes are under way at once in a flood.
const floodWriters = 16

// floodOnce is the flood beside the fewest agents: it does not depend on their number.
func (r *run) floodOnce(ctx context.Context) error {
	if r.figures.Agents != r.plan.Agents[0] {
		return nil
	}
	if err := r.flood(ctx); err != nil {
		return err
	}
	return r.allReady(ctx)
}

// flood changes Pods as fast as the API server takes it, before there are agents.
func (r *run) flood(ctx context.Context) error {
	published, err := r.first.Metric(ctx, "fairlead_publish_syncs_total")
	if err != nil {
		return err
	}
	leader, follower, err := r.both()
	if err != nil {
		return err
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, r.plan.Phase/2)
	defer cancel()
	var count atomic.Int64
	var group sync.WaitGroup
	errs := make(chan error, floodWriters)
	for w := range floodWriters {
		group.Go(func() {
			own := r.plan.Services * r.plan.Pods / floodWriters // each writer has Pods of its own
			for n := 0; limited.Err() == nil; n++ {
				i := w*own + n%own
				p := stage.Pod{Service: i % r.plan.Services, Number: i / r.plan.Services % r.plan.Pods}
				if err := r.SetReady(ctx, p, n/own%2 == 1); err != nil {
					errs <- err
					return
				}
				count.Add(1)
			}
		})
	}
	group.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	after, err := r.first.Metric(ctx, "fairlead_publish_syncs_total")
	if err != nil {
		return err
	}
	leaderAfter, followerAfter, err := r.both()
	changes := float64(count.Load())
	r.figures.Flood = Flood{
		Changes: changes / took, Published: (after - published) / took,
		Leader: over(leaderAfter-leader, 0, changes), Follower: over(followerAfter-follower, 0, changes),
	}
	return err
}

// allReady makes every Pod ready again: a writer may have ended between the two halves of a flip.
func (r *run) allReady(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(floodWriters)
	for s := range r.plan.Services {
		for n := range r.plan.Pods {
			group.Go(func() error { return r.SetReady(ctx, stage.Pod{Service: s, Number: n}, true) })
		}
	}
	return group.Wait()
}

func (r *run) both() (leader, follower time.Duration, err error) {
	if leader, err = meter.CPU(r.first.Pid()); err != nil {
		return 0, 0, err
	}
	follower, err = meter.CPU(r.second.Pid())
	return leader, follower, err
}
