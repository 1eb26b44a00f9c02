package contest

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/fairlead/fairlead/test/bench/stream"
	"github.com/fairlead/fairlead/test/bench/world"
)

// agent is fairlead-agent with the server of its table.
type agent struct {
	*process
	world  world.World
	server *stream.Server
	cancel context.CancelFunc
	served chan error
}

func startAgent(ctx context.Context, in setting) (contestant, error) {
	common, node := in.world.Rows()
	a := &agent{world: in.world, server: stream.New(common, node), served: make(chan error, 1)}
	var l net.Listener
	err := in.site.OnNode(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err //nolint:wrapcheck // it says what it did
	})
	if err != nil {
		return nil, err
	}
	ctx, a.cancel = context.WithCancel(ctx)
	go func() { a.served <- a.server.Serve(ctx, l) }()
	env, err := in.environment()
	var state string
	if err == nil {
		state, err = os.MkdirTemp(in.dir, "agent-state-") // as new: a table on disk would be resumed from
	}
	if err == nil {
		a.process, err = start(command{site: in.site, dir: in.dir, env: env, argv: append([]string{
			in.programs["fairlead-agent"], "--node-name", world.NodeName, "--controller", l.Addr().String(), "--insecure",
			"--cluster-cidr", world.ClusterCIDR().String(), "--conntrack-max-per-core=0", "--conntrack-min=0",
			"--state-dir", state,
		}, in.mode.Agent...)})
	}
	if err != nil {
		a.cancel()
		return nil, errors.Join(err, <-a.served)
	}
	return a, nil
}

func (a *agent) running() *process { return a.process }

func (a *agent) first(ctx context.Context) (Taken, error) {
	return taken(a.server.First(ctx))
}

func (a *agent) change(ctx context.Context, i int, present bool) (Taken, error) {
	return taken(a.server.Put(ctx, a.world.ExtraRow(i), present))
}

func taken(applied stream.Applied, err error) (Taken, error) {
	return Taken{Whole: applied.At.Sub(applied.Handed), Own: applied.Own}, err
}

func (a *agent) stop() error {
	err := a.process.stop()
	a.cancel()
	return errors.Join(err, <-a.served)
}
