package contest

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/test/bench/site"
	"github.com/fairlead/fairlead/test/bench/world"
)

// Taken is how long the kernel was waited for.
type Taken struct {
	// Whole is from when the first byte was written to the contestant's connection until it said that the kernel has it. Own
	// is the part that the contestant itself counts: programming the kernel.
	Whole, Own time.Duration
}

// contestant is a proxy at work.
type contestant interface {
	// first waits until the kernel holds the whole cluster.
	first(ctx context.Context) (Taken, error)
	// change adds the extra endpoint of Service i, or takes it away, and waits until the kernel holds that.
	change(ctx context.Context, i int, present bool) (Taken, error)
	// process is the contestant's.
	running() *process
	// stop ends it with its server.
	stop() error
}

// setting is where and with what a contestant starts.
type setting struct {
	site  *site.Site
	world world.World
	mode  Mode
	// dir takes files, its own for each contestant.
	dir string
	// programs are executables by name: kube-proxy and fairlead-agent.
	programs map[string]string
}

// Side is one of the two that are compared.
type Side int

// The sides, in the order in which they are shown.
const (
	Ours Side = iota
	Peer
)

// String is the program's name.
func (s Side) String() string {
	if s == Ours {
		return "fairlead-agent"
	}
	return "kube-proxy"
}

func (s Side) start(ctx context.Context, in setting) (contestant, error) {
	if s == Ours {
		return startAgent(ctx, in)
	}
	return startKubeProxy(ctx, in)
}
