package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Patience is how long tests wait for any one thing to happen on a slow machine. After an outage of the API server the
// kubelets look again after up to half a minute, and more of them if it was the second within two minutes.
const Patience = 3 * time.Minute

const pollInterval = 100 * time.Millisecond

// poll asks done until it says yes or returns an error. It serves what offers no
// event: processes, kernel objects, programs that have yet to listen. When time runs
// out the error says what was waited for.
func poll(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Patience, fmt.Errorf("%s: not within %s", what, Patience))
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		ok, err := done(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %s: %w", what, errors.Join(context.Cause(ctx), err))
		}
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
