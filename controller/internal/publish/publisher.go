package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
)

// Reader is what the API server holds, as far as this replica has seen. What it returns must not be written to.
type Reader interface {
	Service(types.NamespacedName) (*corev1.Service, bool)
	Services() []*corev1.Service
	// Pods are those that the Service selects.
	Pods(*corev1.Service) []*corev1.Pod
	// Slices are those labelled with the Service's name.
	Slices(service types.NamespacedName) []*discoveryv1.EndpointSlice
	Endpoints(types.NamespacedName) (*corev1.Endpoints, bool)
	Nodes() []*corev1.Node
	NodeLister() corelisters.NodeLister
	// OnSlices and OnEndpoints call a function for every object there is and every change, until ctx ends; wait blocks
	// until the first of these calls have been made.
	OnSlices(ctx context.Context, f func(before, now *discoveryv1.EndpointSlice)) (wait func() error, err error)
	OnEndpoints(ctx context.Context, f func(before, now *corev1.Endpoints)) (wait func() error, err error)
}

// Config of a Publisher.
type Config struct {
	// Reader is what Lead was given.
	Reader Reader
	// Client writes; it should be behind a Fence.
	Client kubernetes.Interface
	Events *Events
	// MaxEndpointsPerSlice is 1 to 1000; upstream's default is 100.
	MaxEndpointsPerSlice int
	// Workers is how many writes are under way at once.
	Workers int
	// BatchPeriod is how long a changed Service waits for its objects to be written, so that more changes go in one write
	// and the tables, which nothing waits for, have the API server and this machine for themselves; 0 or more.
	BatchPeriod time.Duration
	Logger      *slog.Logger
	Registry    prometheus.Registerer
}

// Publisher writes what Services have as endpoints. Any number of goroutines may tell it of changes.
type Publisher struct {
	cfg     Config
	metrics *metrics
	// term is the current time of leadership; nil without it.
	term atomic.Pointer[term]
}

// New returns a Publisher that writes nothing before Lead. It registers metrics.
func New(cfg Config) (*Publisher, error) {
	p := &Publisher{cfg: cfg}
	var err error
	p.metrics, err = newMetrics(cfg.Registry, p.pending)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// pending is how old, in seconds, the oldest change is that tables have and EndpointSlices do not.
func (p *Publisher) pending() float64 {
	if t := p.term.Load(); t != nil {
		return t.lag.oldest(time.Now()).Seconds()
	}
	return 0
}

// Changed says that Services, their Pods or their endpoints may have changed. It returns at once; without leadership it
// does nothing, since a new leader looks at every Service.
func (p *Publisher) Changed(services []types.NamespacedName) {
	t := p.term.Load()
	if t == nil {
		return
	}
	now := time.Now()
	for _, key := range services {
		t.lag.changed(key, now)
		t.enqueueAfter(key, p.cfg.BatchPeriod)
	}
}

// NodesChanged says that Nodes came, went, or changed; they share out topology hints of mode Auto.
func (p *Publisher) NodesChanged(ctx context.Context) {
	if t := p.term.Load(); t != nil {
		t.setNodes(ctx)
	}
}

// Lead writes what a Reader has until ctx ends; it returns when no write is under way any more. Call it when the Reader is
// complete and this replica is the leader. It looks at every Service, Endpoints object and slice once, which sweeps what was left behind.
func (p *Publisher) Lead(ctx context.Context, reader Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cfg := p.cfg
	cfg.Reader = reader
	t := newTerm(cfg, p.metrics)
	t.setNodes(ctx)
	if err := t.watch(ctx); err != nil {
		return fmt.Errorf("start publishing: %w", err)
	}
	p.term.Store(t)
	defer p.term.Store(nil)
	for _, svc := range reader.Services() {
		t.enqueueAfter(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, 0)
	}
	var workers sync.WaitGroup
	for range p.cfg.Workers {
		workers.Go(func() { t.work(ctx) })
	}
	<-ctx.Done()
	t.queue.ShutDown()
	workers.Wait()
	return nil
}

// task is one thing to bring up to date. The kinds of one Service fail and wait apart.
type task struct {
	kind kind
	types.NamespacedName
}

type kind uint8

const (
	// kindSlices are the EndpointSlices of a Service with a selector.
	kindSlices kind = iota
	// kindObject is its Endpoints object.
	kindObject
	// kindMirror are the slices that mirror the Endpoints object of a Service without a selector.
	kindMirror
)

func (k kind) String() string {
	switch k {
	case kindSlices:
		return "slices"
	case kindObject:
		return "endpoints"
	default:
		return "mirror"
	}
}

// Pauses between attempts at one task. They end by themselves: what stands in the way is nearly always a cache that has not
// seen our own write yet, or an API server that is busy.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = 30 * time.Second
)

func newQueue() workqueue.TypedRateLimitingInterface[task] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](firstRetry, lastRetry))
}

// errStale: the cache has not seen our own last write; trying again later is all there is to do.
var errStale = errors.New("cache is older than our last write")

// work takes tasks until the queue is shut down.
func (t *term) work(ctx context.Context) {
	for {
		next, shutdown := t.queue.Get()
		if shutdown {
			return
		}
		t.attempt(ctx, next)
		t.queue.Done(next)
	}
}

func (t *term) attempt(ctx context.Context, next task) {
	err := t.timed(ctx, next)
	t.metrics.attempted(next.kind, err)
	switch {
	case err == nil:
		t.queue.Forget(next)
		return
	case ctx.Err() != nil:
		return
	case t.queue.NumRequeues(next) >= attemptsBeforeComplaint(err):
		if unsaid, ok := t.refused.due(time.Now()); ok {
			t.cfg.Logger.WarnContext(ctx, "cannot publish endpoints, trying on", slog.String("kind", next.kind.String()),
				slog.String("service", next.String()), slog.Any("err", err), unsaid)
		}
	}
	t.queue.AddRateLimited(next)
}

// timed is sync, and for EndpointSlices measures how long a change has waited.
func (t *term) timed(ctx context.Context, next task) error {
	if next.kind != kindSlices {
		return t.sync(ctx, next)
	}
	t.lag.begin(next.NamespacedName)
	err := t.sync(ctx, next)
	if since, ok := t.lag.end(next.NamespacedName, err == nil); ok {
		t.metrics.lag.Observe(time.Since(since).Seconds())
	}
	return err
}

// attemptsBeforeComplaint is after how many attempts an error is worth a line in the log.
func attemptsBeforeComplaint(err error) int {
	if errors.Is(err, errStale) {
		return 12 // 40 seconds
	}
	return 4
}

func (t *term) sync(ctx context.Context, next task) error {
	switch next.kind {
	case kindSlices:
		return t.syncSlices(ctx, next.NamespacedName)
	case kindObject:
		return t.syncObject(ctx, next.NamespacedName)
	default:
		return t.syncMirror(ctx, next.NamespacedName)
	}
}
