package stream

import (
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// receive reads one message; nil without an error is the end of the stream by the agent's wish.
func receive(stream grpc.ServerStream) (*fairleadv1.FollowRequest, error) {
	r := &request{}
	switch err := stream.RecvMsg(r); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	case r.err != nil:
		return nil, invalid(r.err.Error())
	}
	return &r.message, nil
}

// receiveHello waits for the first message, unless drain is closed. A RecvMsg that is waited for no longer ends with the
// stream, which is when the handler returns.
func receiveHello(stream grpc.ServerStream, timeout time.Duration, drain <-chan struct{}) (*fairleadv1.Hello, error) {
	type result struct {
		message *fairleadv1.FollowRequest
		err     error
	}
	first := make(chan result, 1)
	go func() {
		m, err := receive(stream)
		first <- result{m, err}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-first:
		switch {
		case r.err != nil:
			return nil, r.err
		case r.message == nil:
			return nil, invalid("message: the stream ended before hello")
		case r.message.GetHello() == nil:
			return nil, invalid("message: the first one must be hello")
		}
		return r.message.GetHello(), checkHello(r.message.GetHello())
	case <-drain:
		return nil, errDraining()
	case <-timer.C:
		return nil, invalid("message: no hello within " + timeout.String())
	}
}

func invalid(message string) error { return status.Error(codes.InvalidArgument, message) }
