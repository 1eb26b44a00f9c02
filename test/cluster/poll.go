package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	pollInterval = 100 * time.Millisecond
	pollPatience = 3 * time.Minute // for any one thing to happen on a slow machine
)

// poll asks done until it says yes or returns an error. It serves what offers no
// event: processes, kernel objects, programs that have yet to listen. When time runs
// out the error says what was waited for.
func poll(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pollPatience, fmt.Errorf("%s: not within %s", what, pollPatience))
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
