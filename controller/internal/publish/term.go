package publish

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"
)

// term is one time of leadership. All memory of own writes lives and dies with it: what another leader wrote in between
// must not be mistaken for ours.
type term struct {
	cfg        Config
	metrics    *metrics
	queue      workqueue.TypedRateLimitingInterface[task]
	reconciler *endpointslice.Reconciler
	topology   *topologycache.TopologyCache
	// logger is handed to the library, which logs at levels of its own.
	logger  logr.Logger
	rivals  *rivals
	refused complaints // writes that fail
	foreign complaints // writes of another controller

	// slices and mirrors remember the generations that were written, objects the version that was written over.
	slices, mirrors *endpointsliceutil.EndpointSliceTracker
	objects         *overwritten
	// claimed are the names that had a Service in this term, or an Endpoints object before it.
	claimed *names

	sliceTriggers, objectTriggers *triggers
	// lag is how far the slices are behind the tables.
	lag *lag

	// sweeping is true while the objects that were there before this term are looked at.
	sweeping atomic.Bool
}

func newTerm(cfg Config, m *metrics) *term {
	t := &term{
		cfg: cfg, metrics: m, queue: newQueue(),
		topology:      topologycache.NewTopologyCache(),
		logger:        logr.FromSlogHandler(cfg.Logger.Handler()).V(1),
		rivals:        newRivals(),
		slices:        endpointsliceutil.NewEndpointSliceTracker(),
		mirrors:       endpointsliceutil.NewEndpointSliceTracker(),
		objects:       &overwritten{versions: map[types.NamespacedName]string{}},
		claimed:       &names{set: map[types.NamespacedName]struct{}{}},
		sliceTriggers: newTriggers(), objectTriggers: newTriggers(),
		lag: newLag(),
	}
	t.reconciler = endpointslice.NewReconciler(cfg.Client, cfg.Reader.NodeLister(), int32(cfg.MaxEndpointsPerSlice), //nolint:gosec // validated
		t.slices, t.topology, cfg.Events.Legacy(), SliceController, endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	return t
}

// enqueueAfter looks at all that is published for a Service, after a while. The first of several calls counts.
func (t *term) enqueueAfter(key types.NamespacedName, wait time.Duration) {
	for _, k := range []kind{kindSlices, kindObject, kindMirror} {
		t.queue.AddAfter(task{k, key}, wait)
	}
}

// setNodes shares out the zones anew and looks again at Services whose hints no longer suit.
func (t *term) setNodes(context.Context) {
	t.topology.SetNodes(t.logger, t.cfg.Reader.Nodes())
	for _, name := range t.topology.GetOverloadedServices() {
		if key, ok := parseKey(name); ok {
			t.queue.Add(task{kindSlices, key})
		}
	}
}

// watch looks at slices and Endpoints objects that somebody else changed, and returns when it has seen all there are.
func (t *term) watch(ctx context.Context) error {
	t.sweeping.Store(true)
	defer t.sweeping.Store(false)
	slicesSeen, err := t.cfg.Reader.OnSlices(ctx, t.onSlice)
	if err != nil {
		return fmt.Errorf("watch EndpointSlices: %w", err)
	}
	objectsSeen, err := t.cfg.Reader.OnEndpoints(ctx, t.onEndpoints)
	if err != nil {
		return fmt.Errorf("watch Endpoints: %w", err)
	}
	for _, seen := range []func() error{slicesSeen, objectsSeen} {
		if err := seen(); err != nil {
			return err
		}
	}
	return nil
}

// onSlice looks again at the Service of a slice that changed otherwise than we wrote it.
func (t *term) onSlice(before, now *discoveryv1.EndpointSlice) {
	if now == nil {
		t.onSliceGone(before)
		return
	}
	if t.sweeping.Load() {
		t.rivals.left(now)
	}
	if before != nil && before.Labels[discoveryv1.LabelServiceName] != now.Labels[discoveryv1.LabelServiceName] {
		t.enqueueSlice(before)
	}
	if before != nil && before.Labels[discoveryv1.LabelManagedBy] != now.Labels[discoveryv1.LabelManagedBy] {
		t.enqueueSlice(before)
	}
	if tracker := t.trackerOf(now); tracker != nil && tracker.ShouldSync(now) {
		t.enqueueSlice(now)
	}
}

// onSliceGone restores a slice that somebody else deleted. The trackers do not know those that suited us from the start of
// this term on; upstream does not restore them.
func (t *term) onSliceGone(s *discoveryv1.EndpointSlice) {
	if tracker := t.trackerOf(s); tracker != nil && (!tracker.Has(s) || !tracker.HandleDeletion(s)) {
		t.enqueueSlice(s)
	}
}

func (t *term) trackerOf(s *discoveryv1.EndpointSlice) *endpointsliceutil.EndpointSliceTracker {
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case SliceController, upstreamSliceController:
		return t.slices
	case MirrorController, upstreamMirrorController:
		return t.mirrors
	default:
		return nil
	}
}

func (t *term) enqueueSlice(s *discoveryv1.EndpointSlice) {
	key := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case SliceController, upstreamSliceController:
		t.queue.Add(task{kindSlices, key})
	case MirrorController, upstreamMirrorController:
		t.queue.Add(task{kindMirror, key})
	}
}

// onEndpoints mirrors every change, and restores an object that went. An object that somebody edited stays as it is until
// its Service or Pods change, as upstream has it: two controllers would otherwise overwrite each other for ever. Objects of
// others without a Service are removed in the sweep alone: later, somebody may be making the Service next. One of ours had a
// Service, which went before this cache saw what we wrote.
func (t *term) onEndpoints(before, now *corev1.Endpoints) {
	e := now
	if e == nil {
		e = before
	}
	key := types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
	t.queue.Add(task{kindMirror, key})
	if before != nil && now != nil && now.Labels[LabelEndpointsManagedBy] == upstreamObjectController &&
		before.Labels[LabelEndpointsManagedBy] == ObjectController {
		t.complain(key, upstreamObjectController)
	}
	sweeping := t.sweeping.Load()
	if sweeping {
		t.claimed.add(key)
	}
	if now == nil || sweeping || t.orphan(key, now) {
		t.queue.Add(task{kindObject, key})
	}
}

func (t *term) orphan(key types.NamespacedName, e *corev1.Endpoints) bool {
	_, ok := t.cfg.Reader.Service(key)
	return !ok && writtenHere(e)
}

// names is a set. Safe for concurrent use.
type names struct {
	mu  sync.Mutex // guards set
	set map[types.NamespacedName]struct{}
}

func (n *names) add(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set[key] = struct{}{}
}

func (n *names) has(key types.NamespacedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.set[key]
	return ok
}

func (n *names) remove(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.set, key)
}

// overwritten remembers which version of an Endpoints object our last update replaced: a cache that still holds it is
// stale. Safe for concurrent use.
type overwritten struct {
	mu       sync.Mutex // guards versions
	versions map[types.NamespacedName]string
}

func (o *overwritten) set(key types.NamespacedName, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.versions[key] = version
}

func (o *overwritten) is(key types.NamespacedName, version string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	old, ok := o.versions[key]
	return ok && old == version
}

func (o *overwritten) forget(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.versions, key)
}

// complaints lets one line be logged in complaintPause, and counts those left out: a refusal of the API server comes for
// every Service at once. Safe for concurrent use.
type complaints struct {
	mu     sync.Mutex // guards what follows
	last   time.Time
	unsaid int
}

const complaintPause = 10 * time.Second

// due reports whether a line may be logged now, and how many were left out since the last one.
func (c *complaints) due(now time.Time) (unsaid slog.Attr, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.last) < complaintPause {
		c.unsaid++
		return slog.Attr{}, false
	}
	unsaid = slog.Int("more_unsaid", c.unsaid)
	c.last, c.unsaid = now, 0
	return unsaid, true
}
