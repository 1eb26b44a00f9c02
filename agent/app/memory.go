package app

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/proxy"
	"github.com/fairlead/fairlead/proto/fwd"
)

// restingGCPercent is how much garbage, in percent of what is in use, the agent keeps when it has programmed everything: from
// then on changes are small, and what a node's memory is worth to others counts more than the few milliseconds of CPU that a
// collection takes. Before that Go's own 100 holds, since a whole table makes many times its size of garbage.
const restingGCPercent = 15

// thrift gives memory back after each Sync of everything, whose plans and texts are never needed again, and once after smaller
// changes, with the next sync period.
type thrift struct {
	now     chan struct{}
	changed bool // since memory was last given back
}

var _ proxy.Step = (*thrift)(nil)

func newThrift() *thrift { return &thrift{now: make(chan struct{}, 1)} }

// Name implements proxy.Step.
func (*thrift) Name() string { return "memory" }

// Follow implements proxy.Step. Nobody waits for the collection.
func (t *thrift) Follow(_ context.Context, _, _ *fwd.Table, delta dataplane.Delta) ([]dataplane.Notice, error) {
	if calm := delta.Empty() && t.changed; !delta.All && !calm {
		t.changed = t.changed || !delta.Empty()
		return nil, nil
	}
	t.changed = false
	select {
	case t.now <- struct{}{}:
	default: // it is about to be done
	}
	return nil, nil
}

// run collects when there is something to, until ctx ends. An owner who has set GOGC decides himself.
func (t *thrift) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.now:
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(restingGCPercent)
			}
			debug.FreeOSMemory()
		}
	}
}
