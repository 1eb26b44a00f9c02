package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

// Sink takes what changed. All calls come from the goroutine of Feed.Run: any number of changes, then one Commit.
type Sink interface {
	// SetService says what a Service and its endpoints are now.
	SetService(svc *corev1.Service, eps []endpoints.Endpoint)
	// DeleteService says that there is no such Service; there may never have been one.
	DeleteService(namespace, name string)
	// SetNode says what a Node is now.
	SetNode(node *corev1.Node)
	// DeleteNode says that there is no such Node; there may never have been one.
	DeleteNode(name string)
	// Commit ends a round: what was said since the last Commit belongs together.
	Commit(ctx context.Context, round Round)
}

// Round describes the changes that a Commit ends.
type Round struct {
	// Cause is when the oldest event of the round was heard of; zero for the first round of an empty cluster.
	Cause time.Time
	// Services are those that were looked at, sorted by namespace and name; Nodes likewise, by name.
	Services []types.NamespacedName
	Nodes    []string
	// Problems are those of the endpoints of these Services, by Service; one without problems is not in it.
	Problems map[types.NamespacedName][]endpoints.Problem
}

// FeedConfig says where a Feed reads and where it writes to.
type FeedConfig struct {
	Objects *Objects
	Sink    Sink
	// Derived are values of the label endpointslice.kubernetes.io/managed-by of slices that were made from Pods: for a
	// Service with a selector they say nothing that the Pods do not say sooner. Unused where Pods are not watched.
	Derived []string
	// OutageShare is how many of the Nodes (0 to 1) may be unreachable before their Pods' unreadiness is taken for an outage
	// of the control plane and held back; 1 never does. SetOutage, if not nil, is told when one begins and ends.
	OutageShare float64
	SetOutage   func(bool)
	// OutageDoubt is how long the node lifecycle controller's word on a Pod waits for that on most others; default 20 s.
	OutageDoubt time.Duration
	Logger      *slog.Logger
}

// Feed keeps a Sink up to date with the API server.
type Feed struct {
	cfg    FeedConfig
	dirty  *dirty
	synced chan struct{}
	// relief fires when the Nodes have been back for a while.
	relief *time.Timer
}

// NewFeed returns a Feed that does nothing before Run.
func NewFeed(cfg FeedConfig) *Feed {
	if cfg.SetOutage == nil {
		cfg.SetOutage = func(bool) {}
	}
	if cfg.OutageDoubt <= 0 {
		cfg.OutageDoubt = outageDoubt
	}
	return &Feed{cfg: cfg, dirty: newDirty(), synced: make(chan struct{})}
}

// Synced is closed when the first full lists of all resources have gone through Commit, in one round.
func (f *Feed) Synced() <-chan struct{} { return f.synced }

// Run feeds the Sink until ctx ends, which is no error. Call it once.
func (f *Feed) Run(ctx context.Context) error {
	handlers, err := f.subscribe()
	if err != nil {
		return err
	}
	if drained(ctx, handlers...) != nil {
		return nil
	}
	start := time.Now()
	f.relief = time.NewTimer(outageLinger)
	defer f.relief.Stop()
	f.trust()
	f.judge(ctx, false)
	f.round(ctx, f.dirty.take())
	close(f.synced)
	f.cfg.Logger.InfoContext(ctx, "first tables computed", slog.Int("services", len(f.cfg.Objects.Services())),
		slog.Int("nodes", len(f.cfg.Objects.Nodes())), slog.Duration("took", time.Since(start)))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.relief.C:
			f.judge(ctx, true)
		case <-f.dirty.wake:
			b := f.dirty.take()
			if len(b.nodes) > 0 {
				f.judge(ctx, false)
			}
			if !b.since.IsZero() {
				f.round(ctx, b)
			}
		}
	}
}

// Again has Services looked at again, none or some, and a Commit made, from any goroutine.
func (f *Feed) Again(services ...types.NamespacedName) { f.dirty.again(services) }

func (f *Feed) subscribe() ([]toolscache.ResourceEventHandlerRegistration, error) {
	o := f.cfg.Objects
	var registrations []toolscache.ResourceEventHandlerRegistration
	for _, s := range []struct {
		informer toolscache.SharedIndexInformer
		handler  toolscache.ResourceEventHandler
	}{
		{o.services, handle(f.onService)},
		{o.nodes, handle(f.onNode)},
		{o.slices, handle(f.onSlice)},
		{o.pods, handle(f.onPod)},
	} {
		if s.informer == nil {
			continue
		}
		registration, err := s.informer.AddEventHandler(s.handler)
		if err != nil {
			return nil, fmt.Errorf("add event handler: %w", err)
		}
		registrations = append(registrations, registration)
	}
	return registrations, nil
}

func (f *Feed) onService(e event[corev1.Service]) {
	s := cmp.Or(e.now, e.before)
	f.dirty.mark("", types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
}

// onPod marks the Services of a Pod before and after. Those of a first list need no mark: every Service has one by then,
// and nothing is computed before all first lists are in.
func (f *Feed) onPod(e event[corev1.Pod]) {
	if e.first || e.before != nil && e.now != nil && samePod(e.before, e.now) {
		return
	}
	before, now := e.before != nil && assertedUnready(e.before), e.now != nil && assertedUnready(e.now)
	switch {
	case now && !before:
		f.doubt(e.now)
	case before && !now:
		f.cfg.Objects.outage.retract(e.before)
	}
	if e.before != nil && (e.now == nil || !maps.Equal(e.before.Labels, e.now.Labels)) {
		f.dirty.mark("", f.cfg.Objects.ServicesOf(e.before)...)
	}
	if e.now != nil {
		f.dirty.mark("", f.cfg.Objects.ServicesOf(e.now)...)
	}
}

// onNode marks the Node and, where its zone changed or it came or went, the Services that have a Pod on it.
func (f *Feed) onNode(e event[corev1.Node]) {
	if e.before != nil && e.now != nil && sameNode(e.before, e.now) {
		return
	}
	name := cmp.Or(e.now, e.before).Name
	f.dirty.mark(name)
	if e.first || e.before != nil && e.now != nil && zoneOf(e.before) == zoneOf(e.now) {
		return
	}
	for _, p := range f.cfg.Objects.PodsOn(name) {
		f.dirty.mark("", f.cfg.Objects.ServicesOf(p)...)
	}
}

// onSlice marks the Services of a slice, unless their Pods have told it already.
func (f *Feed) onSlice(e event[discoveryv1.EndpointSlice]) {
	for _, s := range []*discoveryv1.EndpointSlice{e.before, e.now} {
		if s == nil {
			continue
		}
		key, ok := ServiceOf(s)
		if !ok {
			continue
		}
		svc, there := f.cfg.Objects.Service(key)
		if there && f.fromPods(svc) && f.derived(s) && !endpoints.HintsFromSlices(svc) {
			continue
		}
		f.dirty.mark("", key)
	}
}

// round computes what is dirty and commits it. Nodes go first, so that Services meet the zones of now.
func (f *Feed) round(ctx context.Context, b batch) {
	round := Round{
		Cause:    b.since,
		Services: slices.SortedFunc(maps.Keys(b.services), compareKeys),
		Nodes:    slices.Sorted(maps.Keys(b.nodes)),
		Problems: map[types.NamespacedName][]endpoints.Problem{},
	}
	for _, name := range round.Nodes {
		if node, ok := f.cfg.Objects.Node(name); ok {
			f.cfg.Sink.SetNode(node)
		} else {
			f.cfg.Sink.DeleteNode(name)
		}
	}
	for _, key := range round.Services {
		svc, ok := f.cfg.Objects.Service(key)
		if !ok {
			f.cfg.Sink.DeleteService(key.Namespace, key.Name)
			continue
		}
		eps, problems := f.EndpointsIn(f.cfg.Objects, svc)
		f.cfg.Sink.SetService(svc, eps)
		if len(problems) > 0 {
			round.Problems[key] = problems
		}
	}
	f.cfg.Sink.Commit(ctx, round)
}

// EndpointsIn are those of the Service's Pods, as far as Pods are watched and selected, and those of slices that somebody
// else wrote, all as these Objects have them. A Pod on a Node that is not known is left out until the Node appears, which marks the Service (SEMANTICS 1.4).
func (f *Feed) EndpointsIn(o *Objects, svc *corev1.Service) ([]endpoints.Endpoint, []endpoints.Problem) {
	written := o.Slices(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name})
	if !f.fromPods(svc) {
		return endpoints.FromSlices(svc, written)
	}
	eps, problems, _ := endpoints.FromPods(svc, o.Pods(svc), o)
	foreign := make([]*discoveryv1.EndpointSlice, 0)
	var derived []*discoveryv1.EndpointSlice
	for _, s := range written {
		if f.derived(s) {
			derived = append(derived, s)
		} else {
			foreign = append(foreign, s)
		}
	}
	if endpoints.HintsFromSlices(svc) {
		eps = endpoints.WithHints(eps, derived)
	}
	if len(foreign) > 0 {
		more, moreProblems := endpoints.FromSlices(svc, foreign)
		eps, problems = append(eps, more...), append(problems, moreProblems...)
	}
	return eps, problems
}

func (f *Feed) fromPods(svc *corev1.Service) bool {
	return f.cfg.Objects.pods != nil && endpoints.HasSelector(svc)
}

func (f *Feed) derived(s *discoveryv1.EndpointSlice) bool {
	return slices.Contains(f.cfg.Derived, s.Labels[discoveryv1.LabelManagedBy])
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
