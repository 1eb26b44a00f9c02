package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

// Names of the indexes.
const (
	bySelector = "selector" // Services, by the pair of labels of their selector that pairOf chooses
	byLabel    = "label"    // Pods, by each of their labels
	byNode     = "node"     // Pods, by the Node they are bound to
	byService  = "service"  // EndpointSlices, by the Service they say they belong to
)

// Objects is what was read from the API server, as of now. Its methods may be called from any goroutine; what they return
// is shared with the cache and must not be written to. Before the caches have synced it is incomplete.
type Objects struct {
	services, nodes, slices, pods, endpoints, agents toolscache.SharedIndexInformer
	outage                                           outage
}

// Informers are where Objects reads. Pods and Endpoints are nil where they are not watched, and so is Agents, the metadata
// of the agents' Pods, where Pods are.
type Informers struct {
	Services, Nodes, Slices, Pods, Endpoints, Agents toolscache.SharedIndexInformer
}

// NewObjects adds the indexes that Objects needs to informers, which must not have them yet.
func NewObjects(from Informers) (*Objects, error) {
	for _, i := range []struct {
		informer toolscache.SharedIndexInformer
		indexers toolscache.Indexers
	}{
		{from.Services, serviceIndexers()},
		{from.Slices, sliceIndexers()},
		{from.Pods, podIndexers()},
	} {
		if i.informer == nil {
			continue
		}
		if err := i.informer.AddIndexers(i.indexers); err != nil {
			return nil, fmt.Errorf("add indexes: %w", err)
		}
	}
	return &Objects{
		services: from.Services, nodes: from.Nodes, slices: from.Slices, pods: from.Pods, endpoints: from.Endpoints, agents: from.Agents,
	}, nil
}

// Count is how many objects of each watched resource there are, by the resource's name.
func (o *Objects) Count() map[string]int {
	counts := map[string]int{}
	for resource, informer := range map[string]toolscache.SharedIndexInformer{
		"services": o.services, "nodes": o.nodes, "endpointslices": o.slices, "pods": o.pods, "endpoints": o.endpoints,
	} {
		if informer != nil {
			counts[resource] = len(informer.GetStore().ListKeys())
		}
	}
	return counts
}

// Service returns a Service.
func (o *Objects) Service(key types.NamespacedName) (*corev1.Service, bool) {
	return get[*corev1.Service](o.services, key.String())
}

// Services returns all Services, in no order.
func (o *Objects) Services() []*corev1.Service { return all[*corev1.Service](o.services) }

// Node returns a Node.
func (o *Objects) Node(name string) (*corev1.Node, bool) { return get[*corev1.Node](o.nodes, name) }

// Nodes returns all Nodes, in no order.
func (o *Objects) Nodes() []*corev1.Node { return all[*corev1.Node](o.nodes) }

// NodeNames returns the names of all Nodes, in no order.
func (o *Objects) NodeNames() []string { return o.nodes.GetStore().ListKeys() }

// Zone returns the zone of a Node, for package endpoints: "" for a Node without one; known is false where there is no such
// Node.
func (o *Objects) Zone(node string) (zone string, known bool) {
	n, known := o.Node(node)
	if !known {
		return "", false
	}
	return zoneOf(n), true
}

// NodeLister reads the same Nodes in the way that client-go's libraries ask for.
func (o *Objects) NodeLister() corelisters.NodeLister {
	return corelisters.NewNodeLister(o.nodes.GetIndexer())
}

// Endpoints returns the Endpoints object of a Service; none where Endpoints are not watched.
func (o *Objects) Endpoints(key types.NamespacedName) (*corev1.Endpoints, bool) {
	return get[*corev1.Endpoints](o.endpoints, key.String())
}

// Slices returns the EndpointSlices labelled with the Service's name, whoever wrote them, in no order.
func (o *Objects) Slices(service types.NamespacedName) []*discoveryv1.EndpointSlice {
	return indexed[*discoveryv1.EndpointSlice](o.slices, byService, service.String())
}

// Pods returns the Pods that a Service selects, in no order; none for a Service without a selector. During an outage of
// most Nodes they are as their kubelets last reported them, see outage.go.
func (o *Objects) Pods(s *corev1.Service) []*corev1.Pod {
	if !endpoints.HasSelector(s) {
		return nil
	}
	pods := indexed[*corev1.Pod](o.pods, byLabel, pairOf(s))
	return o.outage.believed(slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !endpoints.Selects(s, p) }))
}

// ServicesOf returns the keys of the Services that select a Pod.
func (o *Objects) ServicesOf(p *corev1.Pod) []types.NamespacedName {
	var keys []types.NamespacedName
	for k, v := range p.Labels {
		for _, s := range indexed[*corev1.Service](o.services, bySelector, pair(p.Namespace, k, v)) {
			if endpoints.Selects(s, p) {
				keys = append(keys, types.NamespacedName{Namespace: s.Namespace, Name: s.Name})
			}
		}
	}
	return keys
}

// PodsOn returns the Pods that are bound to a Node.
func (o *Objects) PodsOn(node string) []*corev1.Pod {
	return indexed[*corev1.Pod](o.pods, byNode, node)
}

func (o *Objects) allPods() []*corev1.Pod {
	if o.pods == nil {
		return nil
	}
	return all[*corev1.Pod](o.pods)
}

// OnSlices calls f for every EndpointSlice there is and then for every change, with the state before (nil where the slice
// is new to f) and the state now (nil where it went), one call at a time, until ctx ends. The returned wait blocks until f
// has seen all that there were; it fails only with ctx.
func (o *Objects) OnSlices(ctx context.Context, f func(before, now *discoveryv1.EndpointSlice)) (wait func() error, err error) {
	return subscribe(ctx, o.slices, f)
}

// OnEndpoints is as OnSlices, for Endpoints objects; they must be watched.
func (o *Objects) OnEndpoints(ctx context.Context, f func(before, now *corev1.Endpoints)) (wait func() error, err error) {
	return subscribe(ctx, o.endpoints, f)
}

func subscribe[T any](ctx context.Context, informer toolscache.SharedIndexInformer, f func(before, now *T)) (func() error, error) {
	registration, err := informer.AddEventHandler(handle(func(e event[T]) { f(e.before, e.now) }))
	if err != nil {
		return nil, fmt.Errorf("add event handler: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(registration) })
	return func() error { return drained(ctx, registration) }, nil
}

// drained waits until the handlers have seen their whole first list. The cache having synced would not do: it fills before
// its handlers are called.
func drained(ctx context.Context, handlers ...toolscache.ResourceEventHandlerRegistration) error {
	for _, h := range handlers {
		select {
		case <-h.HasSyncedChecker().Done():
		case <-ctx.Done():
			return fmt.Errorf("wait for first lists: %w", context.Cause(ctx))
		}
	}
	return nil
}

func serviceIndexers() toolscache.Indexers {
	return toolscache.Indexers{bySelector: indexer(func(s *corev1.Service) []string {
		if !endpoints.HasSelector(s) {
			return nil
		}
		return []string{pairOf(s)}
	})}
}

func podIndexers() toolscache.Indexers {
	return toolscache.Indexers{
		byLabel: indexer(func(p *corev1.Pod) []string {
			pairs := make([]string, 0, len(p.Labels))
			for k, v := range p.Labels {
				pairs = append(pairs, pair(p.Namespace, k, v))
			}
			return pairs
		}),
		byNode: indexer(func(p *corev1.Pod) []string {
			if p.Spec.NodeName == "" {
				return nil
			}
			return []string{p.Spec.NodeName}
		}),
	}
}

func sliceIndexers() toolscache.Indexers {
	return toolscache.Indexers{byService: indexer(func(s *discoveryv1.EndpointSlice) []string {
		if key, ok := ServiceOf(s); ok {
			return []string{key.String()}
		}
		return nil
	})}
}

// ServiceOf returns the Service that an EndpointSlice says it belongs to.
func ServiceOf(s *discoveryv1.EndpointSlice) (types.NamespacedName, bool) {
	name := s.Labels[discoveryv1.LabelServiceName]
	return types.NamespacedName{Namespace: s.Namespace, Name: name}, name != ""
}

// pairOf chooses the label of a selector that Services are indexed by: the one with the longest value, which tells
// instances apart more often than tiers and components do. Any choice is right; a good one meets fewer Pods.
func pairOf(s *corev1.Service) string {
	var key, value string
	for k, v := range s.Spec.Selector {
		if key == "" || len(v) > len(value) || len(v) == len(value) && k < key {
			key, value = k, v
		}
	}
	return pair(s.Namespace, key, value)
}

func pair(namespace, key, value string) string { return namespace + "/" + key + "=" + value }

func indexer[T any](index func(T) []string) toolscache.IndexFunc {
	return func(obj any) ([]string, error) {
		o, ok := obj.(T)
		if !ok {
			return nil, fmt.Errorf("index object: unexpected type %T", obj)
		}
		return index(o), nil
	}
}

func get[T any](informer toolscache.SharedIndexInformer, key string) (T, bool) {
	var none T
	if informer == nil {
		return none, false
	}
	obj, exists, err := informer.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return none, false
	}
	o, ok := obj.(T)
	return o, ok
}

func all[T any](informer toolscache.SharedIndexInformer) []T {
	return typed[T](informer.GetIndexer().List())
}

func indexed[T any](informer toolscache.SharedIndexInformer, index, value string) []T {
	if informer == nil {
		return nil
	}
	objects, err := informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil
	}
	return typed[T](objects)
}

func typed[T any](objects []any) []T {
	out := make([]T, 0, len(objects))
	for _, obj := range objects {
		if o, ok := obj.(T); ok {
			out = append(out, o)
		}
	}
	return out
}
