package publish

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
)

// Election decides by a Lease which replica leads: it watches the API server, authors the tables and writes. The Lease is read
// and updated, never watched. All fields are required.
type Election struct {
	Client          coordinationv1.LeasesGetter
	Namespace, Name string
	Candidate       Candidate
	// A leader that has not renewed within Renew stops; another may lead when Duration has passed. Retry is the pause
	// between attempts. Duration > Renew > 1.2 Retry.
	Duration, Renew, Retry time.Duration
	// Floor is the highest epoch that this replica has heard of.
	Floor func() uint64
	// Observed is told where the leader serves when another one does: "" for nobody, or this replica itself. It must not block.
	Observed func(address string)
	// Refused is told why the Lease cannot be read. It must not block.
	Refused func(ctx context.Context, err error)
	Logger  *slog.Logger
}

// Term is one time of leadership.
type Term struct {
	// Epoch is greater than that of every term before.
	Epoch uint64
	// Current reports whether nobody else can lead yet: to be asked before each write. It may say no before the term's
	// context ends, in a process that was stopped for a while.
	Current func() bool
}

// Run takes part in the election until ctx ends, and runs lead whenever this replica wins: lead must return soon after its
// ctx has ended, which it does when the Lease is lost or Run is to end. Losing is no error: a replica that cannot reach
// the API server keeps serving tables. The Lease is given back only after lead has returned.
func (e Election) Run(ctx context.Context, lead func(context.Context, Term)) error {
	lock := &lock{Election: e}
	for ctx.Err() == nil {
		if err := e.once(ctx, lock, lead); err != nil {
			return err
		}
	}
	return nil
}

// once takes part until this replica has led and lost, or ctx ends.
func (e Election) once(ctx context.Context, lock *lock, lead func(context.Context, Term)) error {
	// The elector outlives ctx by the time that lead needs to return, so that nobody else leads before.
	electorCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	led := make(chan struct{})
	started := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: e.Name, ReleaseOnCancel: true,
		LeaseDuration: e.Duration, RenewDeadline: e.Renew, RetryPeriod: e.Retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leaseCtx context.Context) {
				close(started)
				// Whoever stops leading by itself gives the Lease back.
				defer end()
				defer close(led)
				termCtx, stop := context.WithCancel(leaseCtx)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				epoch, _ := lock.state()
				e.Logger.InfoContext(termCtx, "leading: this replica watches the API server and writes to it",
					slog.String("lease", e.Namespace+"/"+e.Name), slog.Uint64("epoch", epoch))
				lead(termCtx, Term{Epoch: epoch, Current: func() bool { return lock.current(epoch) }})
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("make leader elector: %w", err)
	}
	context.AfterFunc(ctx, func() {
		select {
		case <-started:
			<-led
		default:
		}
		end()
	})
	elector.Run(electorCtx)
	select {
	case <-started:
		<-led
		if ctx.Err() == nil {
			e.Logger.WarnContext(ctx, "not leading any more: this replica watches and writes nothing, and serves tables as before")
		}
	default:
	}
	return nil
}
