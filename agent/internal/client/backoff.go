package client

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// backoff is how long to wait after failures. The jitter is full: a thousand agents that lose a controller together come
// back evenly spread.
type backoff struct {
	timing   Timing
	jitter   func(n int64) int64
	failures int
}

// after returns how long to wait after a stream that lived for lived and ended with err. A stream that lived for longer
// than the longest wait was a good one. Who is told when to come back waits at least that long, but no longer than
// maxAsked.
func (b *backoff) after(lived time.Duration, err error) time.Duration {
	if lived > b.timing.RetryMax {
		b.failures = 0
	}
	bound := b.timing.RetryMax
	if b.failures < 16 { // enough to double any base beyond any bound
		bound = min(bound, b.timing.RetryBase<<b.failures)
	}
	b.failures++
	return asked(err) + time.Duration(b.jitter(int64(bound)))
}

// maxAsked bounds the wait that a controller can ask for.
const maxAsked = time.Minute

// asked is the wait that a google.rpc.RetryInfo in err asks for, else 0.
func asked(err error) time.Duration {
	s, ok := status.FromError(err)
	if !ok {
		return 0
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return min(max(0, info.GetRetryDelay().AsDuration()), maxAsked)
		}
	}
	return 0
}
