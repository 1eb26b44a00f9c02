package stream

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// Reasons of this package for which callers are not served.
const (
	// reasonSilent: a connection's time was over before its caller had proved anything.
	reasonSilent = "silent"
	// reasonNoCall: a connection ended before it carried a call. So do those of who speaks no TLS, trusts another CA, sends
	// headers without end, or only looks whether the port is open.
	reasonNoCall = "no call"
	// reasonStreams: a stranger opened and reset streams.
	reasonStreams = "streams"
	// reasonDisplaced: there were too many strangers, and most of them came from this address.
	reasonDisplaced = "displaced"
	// reasonPaced: connections from this address had been of no use lately, and it went on.
	reasonPaced = "paced"
	// reasonHello: the first message was not what the protocol says, or did not come.
	reasonHello = "hello"
	// reasonOther: Config.Authorize said so, and gave no reason that is known.
	reasonOther = "other"
)

// Reasoned is an error that knows a word for why a caller is refused.
type Reasoned interface {
	error
	Reason() string
}

// Refusals counts callers that were not served, by reason, and logs some of each. The methods of nil do nothing. Safe for
// concurrent use.
type Refusals struct {
	counts *prometheus.CounterVec
	log    *slog.Logger
	// limits bound the lines of each reason: callers choose when they call.
	limits map[string]*rate.Limiter
}

// A line for each reason in ten seconds, and a few more at first.
const (
	refusalsLogged     = 0.1
	refusalsLoggedOnce = 5
)

// NewRefusals returns Refusals for the reasons of this package and more, which Config.Authorize may give.
func NewRefusals(registry prometheus.Registerer, log *slog.Logger, more ...string) (*Refusals, error) {
	r := &Refusals{
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_refused_callers_total",
			Help: "Callers that were not served, by reason.",
		}, []string{"reason"}),
		log: log, limits: map[string]*rate.Limiter{},
	}
	for _, reason := range append([]string{reasonSilent, reasonNoCall, reasonStreams, reasonDisplaced, reasonPaced, reasonHello, reasonOther}, more...) {
		r.counts.WithLabelValues(reason)
		r.limits[reason] = rate.NewLimiter(refusalsLogged, refusalsLoggedOnce)
	}
	if err := registry.Register(r.counts); err != nil {
		return nil, err
	}
	return r, nil
}

// note counts a caller, and logs it where not too many were.
func (r *Refusals) note(reason string, about ...slog.Attr) {
	if r == nil {
		return
	}
	limit, known := r.limits[reason]
	if !known {
		reason, limit = reasonOther, r.limits[reasonOther]
	}
	r.counts.WithLabelValues(reason).Inc()
	if limit.Allow() {
		r.log.Warn("caller refused", slog.String("reason", reason), slog.GroupAttrs("", about...))
	}
}
