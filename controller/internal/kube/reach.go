package kube

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Longest and shortest pauses between two attempts to connect to an API server that is away. client-go would back off to
// a minute, which is too long to miss changes after the API server is back.
const (
	minRetry = 100 * time.Millisecond
	maxRetry = 2 * time.Second
	// answerWithin is a quarter of the API server's own limit for a request.
	answerWithin = 15 * time.Second
)

// Reach is a transport that waits while the API server cannot be reached, and says so once when it goes and once when it
// is back, however many requests wait. Only requests without a body wait, and only where no connection could be made, so
// that nothing is ever sent twice. Safe for concurrent use.
type Reach struct {
	next   http.RoundTripper
	logger *slog.Logger
	away   *atomic.Bool
	// patience is how long an answer may take before it is worth a line.
	patience time.Duration
}

// NewReach returns a maker of transports that share one state; it suits rest.Config.Wrap.
func NewReach(logger *slog.Logger) func(http.RoundTripper) http.RoundTripper {
	away := new(atomic.Bool)
	return func(next http.RoundTripper) http.RoundTripper {
		return &Reach{next: next, logger: logger, away: away, patience: answerWithin}
	}
}

// WrappedRoundTripper lets client-go find what is beneath.
func (r *Reach) WrappedRoundTripper() http.RoundTripper { return r.next }

// RoundTrip implements http.RoundTripper.
func (r *Reach) RoundTrip(req *http.Request) (*http.Response, error) {
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		resp, err := r.ask(req)
		if err == nil {
			if r.away.CompareAndSwap(true, false) {
				r.logger.InfoContext(req.Context(), "API server is back", slog.String("server", req.URL.Host))
			}
			return resp, nil
		}
		if req.Context().Err() != nil || !isDial(err) {
			return nil, err
		}
		if r.away.CompareAndSwap(false, true) {
			r.logger.WarnContext(req.Context(), "API server cannot be reached, waiting for it: tables stay as they are",
				slog.String("server", req.URL.Host), slog.Any("err", err))
		}
		if req.Body != nil && req.Body != http.NoBody {
			return nil, err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-req.Context().Done():
			return nil, err
		}
	}
}

// ask waits for an answer as long as the request lets it, and says when that takes long: a server that takes connections
// and never answers looks like one that is merely slow.
func (r *Reach) ask(req *http.Request) (*http.Response, error) {
	silent := time.AfterFunc(r.patience, func() {
		r.logger.WarnContext(req.Context(), "API server has not answered, waiting on", slog.String("server", req.URL.Host),
			slog.String("path", req.URL.Path), slog.Duration("since", r.patience))
	})
	defer silent.Stop()
	return r.next.RoundTrip(req)
}

// isDial reports whether no connection came about, so that nothing of the request was sent.
func isDial(err error) bool {
	var op *net.OpError
	// net/http has no type for it.
	return errors.As(err, &op) && op.Op == "dial" || err.Error() == "net/http: TLS handshake timeout"
}
