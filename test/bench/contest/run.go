package contest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fairlead/fairlead/test/bench/site"
)

// Config says what to measure with.
type Config struct {
	Modes []Mode
	Plan  []Stage
	// Programs are the executables kube-proxy and fairlead-agent.
	Programs map[string]string
	// Dir takes logs and configurations.
	Dir string
	// Progress gets a line for each visit.
	Progress io.Writer
	// Multi is the iptables of the node without a proxy, as Mode.Multi; empty is xtables-nft-multi.
	Multi string
}

// Result is what was found for one mode and one size.
type Result struct {
	Mode  Mode
	Stage Stage
	// Of has the figures of each round; none of a side that was not measured at this size.
	Of map[Side][]Figures
}

// Run makes all visits: one after the other, the two sides by turns. It ends at the first failure.
func Run(ctx context.Context, cfg Config) (results []Result, err error) {
	plain, err := site.New(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()
	if err := plain.Masquerade(ctx, cmp.Or(cfg.Multi, "xtables-nft-multi")); err != nil {
		return nil, err
	}
	for _, stage := range cfg.Plan {
		if err := stage.World.Validate(); err != nil {
			return nil, fmt.Errorf("plan: %w", err)
		}
		for _, mode := range cfg.Modes {
			if stage.Only != "" && stage.Only != mode.Name {
				continue
			}
			r := Result{Mode: mode, Stage: stage, Of: map[Side][]Figures{}}
			for round := range stage.Rounds {
				for _, side := range order(round, stage.World.Total() <= mode.PeerMost) {
					if endless(r.Of[side]) {
						continue
					}
					began := time.Now()
					f, err := visit{setting{world: stage.World, mode: mode, dir: cfg.Dir, programs: cfg.Programs}, stage, side, plain}.run(ctx)
					if err != nil {
						return results, fmt.Errorf("%v, %v, %v: %w", side, mode.Name, stage.World, err)
					}
					r.Of[side] = append(r.Of[side], f)
					fmt.Fprintf(cfg.Progress, "%-14v  %-25s %11v  %d/%d  start %8s  change %8s  (%.0f s)\n", side, mode.Name, stage.World, round+1,
						stage.Rounds, f.Cold.Whole.Round(time.Millisecond), Median(Wholes(f.Changes)).Round(100*time.Microsecond), time.Since(began).Seconds())
				}
			}
			results = append(results, r)
		}
	}
	return results, nil
}

// EndlessStart is a start after which a side is not started again at the same size.
const EndlessStart = 90 * time.Second

func endless(rounds []Figures) bool {
	return len(rounds) > 0 && rounds[len(rounds)-1].Cold.Whole > EndlessStart
}

// order is who comes first in a round; the other one does in the next.
func order(round int, both bool) []Side {
	switch {
	case !both:
		return []Side{Ours}
	case round%2 == 0:
		return []Side{Peer, Ours}
	}
	return []Side{Ours, Peer}
}
