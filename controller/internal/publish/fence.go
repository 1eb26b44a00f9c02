package publish

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// ErrNotLeading is what a request behind a Fence gets without leadership.
var ErrNotLeading = errors.New("this replica is not the leader")

// Fence is a transport that lets requests through during one's leadership alone, and aborts those under way when it ends:
// neither the library that writes slices nor a request that waits for its turn can write too late. Safe for concurrent use.
type Fence struct {
	next http.RoundTripper
	term *atomic.Pointer[opening]
}

// opening is a term in which requests pass, as long as current says so.
type opening struct {
	ctx     context.Context //nolint:containedctx // it is what ends the requests of others
	current func() bool
}

// NewFence returns a fence that is closed, as a maker of transports for rest.Config.Wrap, and open, which lets requests
// through until ctx ends, each one that begins while current says that the term is not over.
func NewFence() (wrap func(http.RoundTripper) http.RoundTripper, open func(ctx context.Context, current func() bool)) {
	term := new(atomic.Pointer[opening])
	wrap = func(next http.RoundTripper) http.RoundTripper { return &Fence{next: next, term: term} }
	return wrap, func(ctx context.Context, current func() bool) { term.Store(&opening{ctx: ctx, current: current}) }
}

// WrappedRoundTripper lets client-go find what is beneath.
func (f *Fence) WrappedRoundTripper() http.RoundTripper { return f.next }

// RoundTrip implements http.RoundTripper.
func (f *Fence) RoundTrip(req *http.Request) (*http.Response, error) {
	term := f.term.Load()
	if term == nil || term.ctx.Err() != nil || !term.current() {
		return nil, ErrNotLeading
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(term.ctx, func() { cancel(ErrNotLeading) })
	release := func() {
		stop()
		cancel(nil)
	}
	resp, err := f.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		release()
		return nil, err
	}
	resp.Body = &fencedBody{ReadCloser: resp.Body, release: release}
	return resp, nil
}

// fencedBody ends the request's context with its body.
type fencedBody struct {
	io.ReadCloser
	release func()
}

func (b *fencedBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
