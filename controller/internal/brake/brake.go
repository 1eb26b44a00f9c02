package brake

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/controller/internal/kube"
)

// Annotation on a Service, with the value OptOut, takes it out of the brake: its endpoints and itself go when they go, and
// do not count.
const (
	Annotation = "fairlead.io/brake"
	OptOut     = "off"
)

// Lookup tells the endpoints of a Service in a fresh list; ok is false where there is no such Service.
type Lookup func(service types.NamespacedName) (eps []endpoints.Endpoint, ok bool)

// Config of a Brake. All fields are required.
type Config struct {
	Next   kube.Sink
	Limits Limits
	// Fresh makes a new list of everything at the API server.
	Fresh func(ctx context.Context) (Lookup, error)
	// Again has Services looked at again, in a round to come.
	Again func(services ...types.NamespacedName)
	// Held is told how much is being held, whenever that changes. It must not block.
	Held   func(endpoints, services int)
	Logger *slog.Logger
}

// Brake is a kube.Sink in front of another one. All methods but Run are for the Feed's goroutine.
type Brake struct {
	cfg     Config
	pending map[types.NamespacedName]*input
	applied map[types.NamespacedName]*state
	total   int // endpoints in applied that take new connections
	// eps and services are what may go at once.
	eps, services allowance
	held          map[types.NamespacedName]struct{}
	heldEndpoints int
	told          tally

	// ask holds a token while something waits for a fresh list.
	ask chan struct{}

	mu sync.Mutex // guards what follows
	// waiting are the Services whose state is to be confirmed; fresh is the list that says so, nil when it was used.
	waiting []types.NamespacedName
	fresh   Lookup
}

// tally is how much is held: endpoints, Services that are gone, and Services that lack anything.
type tally struct{ endpoints, gone, services int }

// input is what the Feed said of a Service; svc is nil where it is gone.
type input struct {
	svc *corev1.Service
	eps []endpoints.Endpoint
}

// state is what the next Sink was told of a Service.
type state struct {
	eps []endpoints.Endpoint
	off bool // opted out
	// kept are those of eps that the Feed does not have any more; gone: it does not have the Service either.
	kept []endpoints.Endpoint
	gone bool
}

var _ kube.Sink = (*Brake)(nil)

// New returns a Brake that holds nothing.
func New(cfg Config) *Brake {
	return &Brake{
		cfg: cfg, pending: map[types.NamespacedName]*input{}, applied: map[types.NamespacedName]*state{},
		held: map[types.NamespacedName]struct{}{}, ask: make(chan struct{}, 1),
	}
}

// SetService implements kube.Sink.
func (b *Brake) SetService(svc *corev1.Service, eps []endpoints.Endpoint) {
	b.pending[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}] = &input{svc: svc, eps: sorted(eps)}
}

// DeleteService implements kube.Sink.
func (b *Brake) DeleteService(namespace, name string) {
	b.pending[types.NamespacedName{Namespace: namespace, Name: name}] = &input{}
}

// SetNode implements kube.Sink.
func (b *Brake) SetNode(node *corev1.Node) { b.cfg.Next.SetNode(node) }

// DeleteNode implements kube.Sink.
func (b *Brake) DeleteNode(name string) { b.cfg.Next.DeleteNode(name) }

// Commit implements kube.Sink. The round that it passes on leaves out the Services that lack something because it is held,
// so that nobody else is told either.
func (b *Brake) Commit(ctx context.Context, round kube.Round) {
	fresh := b.takeFresh()
	now := time.Now()
	b.eps.refill(b.cfg.Limits, b.total, now)
	b.services.refill(b.cfg.Limits, len(b.applied), now)
	v := b.judge(round, fresh)
	if v.tripped {
		b.cfg.Logger.ErrorContext(ctx, "too much would go at once: held until a fresh list from the API server confirms it",
			slog.Int("endpoints", v.endpoints), slog.Int("of_endpoints", b.total), slog.Int("services", v.services), slog.Int("of_services", len(b.applied)))
	}
	passed := round
	passed.Services = make([]types.NamespacedName, 0, len(round.Services))
	for _, key := range round.Services {
		if b.pass(key, v.keep[key]) {
			passed.Services = append(passed.Services, key)
		}
	}
	b.pending = map[types.NamespacedName]*input{}
	if fresh != nil { // whatever it confirmed is gone, and the rest is measured by what there is now
		b.eps, b.services = allowance{}, allowance{}
	}
	b.tell(ctx)
	b.cfg.Next.Commit(ctx, passed)
}

// verdict says what is to be held of a round.
type verdict struct {
	keep map[types.NamespacedName]*keeping
	// endpoints and services would have gone, beyond what is allowed, if tripped.
	endpoints, services int
	tripped             bool
}

// keeping is what is held of one Service.
type keeping struct {
	eps []endpoints.Endpoint
	// service: it stays although it is gone.
	service bool
}

// judge finds what a round takes away that is neither allowed nor confirmed.
func (b *Brake) judge(round kube.Round, fresh Lookup) verdict {
	v := verdict{keep: map[types.NamespacedName]*keeping{}}
	if b.cfg.Limits.Share >= 1 {
		return v
	}
	for _, key := range round.Services {
		in, was := b.pending[key], b.applied[key]
		if in == nil {
			continue
		}
		if was == nil {
			b.eps.left += float64(usable(in.eps))
			continue
		}
		if was.off || in.svc != nil && in.svc.Annotations[Annotation] == OptOut {
			continue
		}
		b.eps.left += float64(len(lost(in.eps, was.eps)))
		k := &keeping{eps: lost(was.eps, in.eps), service: in.svc == nil}
		if fresh != nil {
			k.confirm(fresh, key)
		}
		if len(k.eps) == 0 && !k.service {
			continue
		}
		v.keep[key] = k
		if _, held := b.held[key]; held {
			continue // held before, and still not confirmed: time does not confirm it
		}
		v.endpoints += len(k.eps)
		if k.service {
			v.services++
		}
	}
	if float64(v.endpoints) <= b.eps.left && float64(v.services) <= b.services.left {
		b.eps.left -= float64(v.endpoints)
		b.services.left -= float64(v.services)
		for key := range v.keep {
			if _, held := b.held[key]; !held {
				delete(v.keep, key)
			}
		}
		return v
	}
	v.tripped = true
	return v
}

// confirm takes out what a fresh list does not have either.
func (k *keeping) confirm(fresh Lookup, key types.NamespacedName) {
	eps, there := fresh(key)
	eps = sorted(eps)
	k.service = k.service && there
	if !there {
		eps = nil
	}
	missing := lost(k.eps, eps)
	k.eps = lost(k.eps, missing)
}

// pass tells the next Sink what a Service is now, with what is kept of before. It reports whether that is the truth.
func (b *Brake) pass(key types.NamespacedName, keep *keeping) bool {
	in, was := b.pending[key], b.applied[key]
	if was != nil {
		b.total -= usable(was.eps)
		b.heldEndpoints -= len(was.kept)
	}
	delete(b.held, key)
	if in == nil || in.svc == nil && keep == nil {
		delete(b.applied, key)
		b.cfg.Next.DeleteService(key.Namespace, key.Name)
		return true
	}
	s := &state{eps: in.eps}
	if in.svc != nil {
		s.off = in.svc.Annotations[Annotation] == OptOut
	}
	if keep != nil {
		b.held[key] = struct{}{}
		s.kept, s.gone = keep.eps, in.svc == nil
		s.eps = sorted(slices.Concat(in.eps, keep.eps))
		b.heldEndpoints += len(s.kept)
	}
	b.applied[key] = s
	b.total += usable(s.eps)
	if in.svc != nil {
		b.cfg.Next.SetService(in.svc, s.eps)
	}
	return keep == nil
}
