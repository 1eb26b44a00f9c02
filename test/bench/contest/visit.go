package contest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/test/bench/site"
)

// Figures are what one visit found.
type Figures struct {
	Cold    Taken
	Changes []Taken
	// Floors are runs of the mode's Floor beside the contestant's rules.
	Floors []time.Duration
	// Services are connections to the slowest Service, Endpoints straight to its endpoint through the same node, and Directs
	// the same on a node without Services; all in the same minutes, by turns.
	Services, Endpoints, Directs []time.Duration
	Memory                       Memory
}

// Memory is in bytes. Start is after the first table, End after all changes and a pause.
type Memory struct{ Start, End, Peak, Kernel int64 }

// visit is one contestant in one round.
type visit struct {
	setting
	stage Stage
	side  Side
	// plain is a site without a proxy.
	plain *site.Site
}

// What one contestant may take for its start, and for a change: more than kube-proxy needs in IPVS mode on a busy machine.
const startLimit, changeLimit = time.Hour, 5 * time.Minute

// run starts the contestant, measures, and ends it.
func (v visit) run(ctx context.Context) (f Figures, err error) {
	if v.site, err = site.New(ctx); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, v.site.Close()) }()
	if v.dir, err = os.MkdirTemp(v.dir, "visit-"); err != nil {
		return f, fmt.Errorf("make folder: %w", err)
	}
	c, err := v.side.start(ctx, v.setting)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	starting, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not within %v; see %s", startLimit, c.running().log))
	defer cancel()
	if f.Cold, err = c.first(starting); err != nil {
		return f, err
	}
	if err := v.reached(v.world.Services-1, false); err != nil {
		return f, fmt.Errorf("after the start: %w", err)
	}
	began, err := c.running().memory()
	if err != nil {
		return f, err
	}
	if err := v.change(ctx, c, &f); err != nil {
		return f, err
	}
	if err := v.connect(&f); err != nil {
		return f, err
	}
	ended, err := c.running().settled(ctx, v.stage.Calm)
	if err != nil {
		return f, err
	}
	f.Memory = Memory{Start: began.RSS, End: ended.RSS, Peak: ended.Peak, Kernel: ended.Kernel}
	return f, v.floor(ctx, &f)
}

// floor comes last: the table that its command writes in the legacy flavour is charged to nobody that is watched.
func (v visit) floor(ctx context.Context, f *Figures) error {
	if len(v.mode.Floor.Argv) == 0 {
		return nil
	}
	for range min(5, v.stage.Changes) {
		took, err := v.site.Time(ctx, v.mode.Floor.Argv, v.mode.Floor.Input)
		if err != nil {
			return fmt.Errorf("measure the floor: %w", err)
		}
		f.Floors = append(f.Floors, took)
	}
	return nil
}

// change lets endpoints come to Services at random, and go again.
func (v visit) change(ctx context.Context, c contestant, f *Figures) error {
	for range v.stage.Changes {
		i := rand.IntN(v.world.Services)
		for _, present := range []bool{true, false} {
			changing, cancel := context.WithTimeoutCause(ctx, changeLimit, fmt.Errorf("not within %v", changeLimit))
			t, err := c.change(changing, i, present)
			cancel()
			if err == nil {
				err = v.reached(i, present)
			}
			if err != nil {
				return fmt.Errorf("change of Service %d: %w", i, err)
			}
			f.Changes = append(f.Changes, t)
		}
	}
	return nil
}

// reached asks a Service until its extra endpoint has answered, or so often that it would have. Each answer has to come from
// one of the Service's own endpoints.
func (v visit) reached(i int, extra bool) error {
	own, seen := v.world.EndpointsOf(i), false
	for n := 0; n < 200 && (!seen || n < 30); n++ {
		from, err := v.site.Ask(v.world.VirtualIP(i))
		switch {
		case err != nil:
			return err
		case from == v.world.Extra(i) && extra:
			return nil
		case !slices.Contains(own, from):
			return fmt.Errorf("service %v: %v answered, want one of %v", v.world.VirtualIP(i), from, own)
		}
		seen = !extra
	}
	if extra {
		return fmt.Errorf("service %v: the endpoint that came, %v, does not answer", v.world.VirtualIP(i), v.world.Extra(i))
	}
	return nil
}

// Sampled is how many Services are tried in the search for the slowest.
const Sampled = 256

// tries is how often each of them is, and blocks in how many turns connections are timed.
const tries, blocks = 5, 20

// connect times connections to the Service that is the slowest to be found: behind a list of rules, the last one.
func (v visit) connect(f *Figures) error {
	slowest, worst := 0, time.Duration(0)
	err := v.site.Probing(func(p *site.Probe) error {
		for _, i := range v.world.Sample(Sampled) {
			best := time.Hour
			for range tries {
				took, err := p.Connect(v.world.VirtualIP(i))
				if err != nil {
					return err
				}
				best = min(best, took)
			}
			if best > worst {
				slowest, worst = i, best
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for the slowest Service: %w", err)
	}
	service, endpoint := v.world.VirtualIP(slowest), v.world.EndpointsOf(slowest)[0]
	for range blocks {
		n := max(1, v.stage.Connections/blocks)
		for _, way := range []struct {
			site *site.Site
			to   netip.AddrPort
			all  *[]time.Duration
		}{{v.site, service, &f.Services}, {v.plain, endpoint, &f.Directs}, {v.site, endpoint, &f.Endpoints}} {
			if way.all == &f.Endpoints && v.mode.mixes() {
				continue
			}
			err := way.site.Probing(func(p *site.Probe) error {
				for range n {
					took, err := p.Connect(way.to)
					if err != nil {
						return err
					}
					*way.all = append(*way.all, took)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("time connections: %w", err)
			}
		}
	}
	return nil
}

// settled waits until the process gives no more memory back, for half a minute at most.
func (p *process) settled(ctx context.Context, calm int) (memory, error) {
	least, err := p.memory()
	same := 0
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for range 30 {
		if err != nil || same == calm {
			return least, err
		}
		select {
		case <-ctx.Done():
			return least, fmt.Errorf("watch memory: %w", ctx.Err())
		case <-again.C:
		}
		var now memory
		now, err = p.memory()
		same++
		if now.RSS < least.RSS-least.RSS/100 {
			same = 0
		}
		least = now
	}
	return least, err
}
