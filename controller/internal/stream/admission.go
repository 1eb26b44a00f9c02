package stream

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// admit takes a token for one snapshot. It waits for up to Config.AdmissionWait; where that is not enough, it returns
// RESOURCE_EXHAUSTED with a google.rpc.RetryInfo: a random moment after the wait, so that those refused do not return
// together.
func (s *Server) admit(ctx context.Context) error {
	token := s.snapshots.Reserve()
	delay := token.Delay()
	if delay == 0 {
		return nil
	}
	if delay > s.cfg.AdmissionWait {
		token.Cancel()
		return errTooMany(delay + randomly(s.cfg.AdmissionWait))
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.drain:
		return errDraining()
	case <-ctx.Done():
		token.Cancel()
		return status.FromContextError(ctx.Err()).Err()
	}
}

func errTooMany(retry time.Duration) error {
	st := status.New(codes.ResourceExhausted, "too many agents ask for a whole table at once: come back later")
	detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	if err != nil { // cannot be: the code is not OK and the detail is a message
		return st.Err()
	}
	return detailed.Err()
}
