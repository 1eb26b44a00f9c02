package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/test/scale/meter"
	"github.com/fairlead/fairlead/test/scale/stage"
	"github.com/fairlead/fairlead/test/scale/watchers"
)

// peer lets kube-proxy's watchers take the agents' place. The next change is written when all have the one before.
func (r *run) peer(ctx context.Context) error {
	n := min(r.figures.Agents, r.plan.Watchers)
	r.leave()
	if n == 0 {
		return nil
	}
	for at := 0; at < n; at += perProcess {
		h, err := r.StartWatchers(at, min(perProcess, n-at))
		if err != nil {
			return err
		}
		r.many = append(r.many, h)
	}
	var before watchers.State
	err := stage.Until(ctx, "watches to open", func() (err error) {
		before, err = watched(ctx, r.many)
		switch {
		case err != nil:
			return err
		case before.Open < 3*n:
			return fmt.Errorf("%d of %d watches are open", before.Open, 3*n)
		case before.FewestSlices < before.MostSlices || before.FewestSlices < r.plan.Services:
			return fmt.Errorf("watchers have %d to %d EndpointSlices", before.FewestSlices, before.MostSlices)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := rest(ctx); err != nil {
		return err
	}
	// An idle phase of its own: open watches cost something too.
	began := time.Now()
	calm, err := meter.CPU(r.api)
	if err != nil {
		return err
	}
	if err := rest(ctx); err != nil {
		return err
	}
	api, err := meter.CPU(r.api)
	if err != nil {
		return err
	}
	idle := (api - calm).Seconds() / time.Since(began).Seconds()
	return r.flipPeer(ctx, idle)
}

// flipPeer changes Pods, one after the other; idle is the share of a core that the API server uses anyway. The first two
// are not counted: a replica that has taken over publishes nothing before it leads.
func (r *run) flipPeer(ctx context.Context, idle float64) error {
	var before watchers.State
	var began time.Time
	var api time.Duration
	p := &Peer{}
	for n := -2; n < 4 || time.Since(began) < r.plan.Phase; n++ {
		if n == 0 {
			var err error
			if before, err = watched(ctx, r.many); err != nil {
				return err
			}
			if api, err = meter.CPU(r.api); err != nil {
				return err
			}
			began = time.Now()
		}
		i := (n + 2) / 2
		took, err := r.flipOne(ctx, stage.Pod{Service: i % r.plan.Services, Number: i / r.plan.Services % r.plan.Pods}, n%2 != 0)
		if err != nil {
			return err
		}
		if n >= 0 {
			p.Took = append(p.Took, took)
		}
	}
	spent, err := meter.CPU(r.api)
	if err != nil {
		return err
	}
	p.APIServer = over(spent-api, idle*time.Since(began).Seconds(), float64(len(p.Took)))
	after, err := watched(ctx, r.many)
	p.Watchers, p.Ended = after.Watchers, after.Ended
	p.Bytes = float64(after.WireBytes-before.WireBytes) / float64(len(p.Took)) / float64(p.Watchers)
	p.Took = sorted(p.Took)
	r.figures.Peer = p
	return err
}

// flipOne changes one Pod and returns how long it took until its EndpointSlice was with all watchers.
func (r *run) flipOne(ctx context.Context, p stage.Pod, ready bool) (time.Duration, error) {
	before, err := watched(ctx, r.many)
	if err != nil {
		return 0, err
	}
	began, want := time.Now(), before.MostSlices+1
	if err := r.SetReady(ctx, p, ready); err != nil {
		return 0, err
	}
	var after watchers.State
	err = stage.Until(ctx, "EndpointSlices", func() (err error) {
		if after, err = watched(ctx, r.many); err == nil && after.FewestSlices < want {
			err = fmt.Errorf("watchers have %d to %d, want %d", after.FewestSlices, after.MostSlices, want)
		}
		return err
	})
	return time.UnixMicro(after.LastSlice).Sub(began), err
}

// watched adds up what processes have seen.
func watched(ctx context.Context, herds []*stage.Herd) (watchers.State, error) {
	var sum watchers.State
	for i, h := range herds {
		var st watchers.State
		if err := h.Ask(ctx, watchers.StatePath, &st); err != nil {
			return sum, err
		}
		sum.Watchers += st.Watchers
		sum.Open += st.Open
		sum.Ended += st.Ended
		sum.WireBytes += st.WireBytes
		sum.MostSlices = max(sum.MostSlices, st.MostSlices)
		if i == 0 || st.FewestSlices < sum.FewestSlices {
			sum.FewestSlices = st.FewestSlices
		}
		sum.LastSlice = max(sum.LastSlice, st.LastSlice)
	}
	return sum, nil
}
