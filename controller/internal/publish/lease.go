package publish

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Election decides by a Lease which replica writes. The Lease is read and updated, never watched.
type Election struct {
	Client          coordinationv1.LeasesGetter
	Namespace, Name string
	// Identity is this replica's, unique among all.
	Identity string
	// A leader that has not renewed within Renew stops; another may lead when Duration has passed. Retry is the pause
	// between attempts. Duration > Renew > 1.2 Retry.
	Duration, Renew, Retry time.Duration
	Logger                 *slog.Logger
}

// Run takes part in the election until ctx ends, and runs lead whenever this replica wins: lead must return soon after its
// ctx has ended, which it does when the Lease is lost or Run is to end. Losing is no error: a replica that cannot reach
// the API server keeps serving tables. The Lease is given back only after lead has returned.
func (e Election) Run(ctx context.Context, lead func(context.Context)) error {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
		Client:     e.Client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
	}
	for ctx.Err() == nil {
		if err := e.once(ctx, lock, lead); err != nil {
			return err
		}
	}
	return nil
}

// once takes part until this replica has led and lost, or ctx ends.
func (e Election) once(ctx context.Context, lock resourcelock.Interface, lead func(context.Context)) error {
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
				e.Logger.InfoContext(termCtx, "leading: this replica writes to the API server", slog.String("lease", e.Namespace+"/"+e.Name))
				lead(termCtx)
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
			e.Logger.WarnContext(ctx, "not leading any more: this replica writes nothing, and serves tables as before")
		}
	default:
	}
	return nil
}
