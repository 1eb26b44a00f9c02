package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WatchConfig says what is watched.
type WatchConfig struct {
	// REST is the API server; the content type is left to controller-runtime, which takes protobuf.
	REST *rest.Config
	// Pods: watch Pods and Endpoints too. Without it Services, Nodes and EndpointSlices are all there is.
	Pods bool
	// Agents are the Pods of the agents, which are watched apart, by their metadata alone, where Pods is false; nil for none.
	Agents *AgentPods
	Logger *slog.Logger
}

// AgentPods says where the agents' Pods are: in a namespace, with a label.
type AgentPods struct{ Namespace, Label, Value string }

// Watch prepares one watch per resource. Nothing is asked of the API server before run is called, which blocks until ctx
// ends.
func Watch(ctx context.Context, cfg WatchConfig) (o *Objects, run func(context.Context) error, err error) {
	options := cache.Options{
		Scheme:                   clientgoscheme.Scheme,
		Mapper:                   mapper(),
		DefaultTransform:         strip,
		DefaultWatchErrorHandler: watchErrors(cfg.Logger),
	}
	agents := metadataOf("Pod")
	if cfg.Agents != nil && !cfg.Pods {
		// A watch of one namespace, by controller-runtime's own means, would be an informer without indexes.
		options.ByObject = map[client.Object]cache.ByObject{agents: {
			Field: fields.OneTermEqualSelector("metadata.namespace", cfg.Agents.Namespace),
			Label: labels.SelectorFromSet(labels.Set{cfg.Agents.Label: cfg.Agents.Value}),
		}}
	}
	informers, err := cache.New(cfg.REST, options)
	if err != nil {
		return nil, nil, fmt.Errorf("make cache: %w", err)
	}
	watches := map[client.Object]*toolscache.SharedIndexInformer{}
	var from Informers
	watches[&corev1.Service{}], watches[&corev1.Node{}], watches[&discoveryv1.EndpointSlice{}] = &from.Services, &from.Nodes, &from.Slices
	switch {
	case cfg.Pods:
		watches[&corev1.Pod{}], watches[&corev1.Endpoints{}] = &from.Pods, &from.Endpoints
	case cfg.Agents != nil:
		watches[agents] = &from.Agents
	}
	for object, informer := range watches {
		if *informer, err = sharedInformer(ctx, informers, object); err != nil {
			return nil, nil, fmt.Errorf("watch %T: %w", object, err)
		}
	}
	if o, err = NewObjects(from); err != nil {
		return nil, nil, err
	}
	return o, informers.Start, nil
}

// metadataOf names the metadata of a kind of the core group.
func metadataOf(kind string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return o
}

// sharedInformer returns the informer of a kind, with its indexes, which controller-runtime's interface hides.
func sharedInformer(ctx context.Context, informers cache.Informers, object client.Object) (toolscache.SharedIndexInformer, error) {
	informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("get informer: %w", err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("get informer: %T has no index", informer)
	}
	return shared, nil
}

// mapper knows the watched kinds by heart, so that a start needs no discovery: it works while the API server is away.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Service", "Pod", "Endpoints"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	return m
}

// watchErrors replaces client-go's handler, which logs every failed attempt. An API server that does not answer is said
// by Reach, once; what only an administrator can change is said here; the rest (a watch that expired) mends itself.
func watchErrors(logger *slog.Logger) toolscache.WatchErrorHandlerWithContext {
	explain := Explain(logger)
	return func(ctx context.Context, _ *toolscache.Reflector, err error) { explain(ctx, err) }
}

// Explain returns a function that says what an error of the API server asks of an administrator, not too often.
func Explain(logger *slog.Logger) func(context.Context, error) {
	said := new(atomic.Int64) // when, in Unix seconds
	return func(ctx context.Context, err error) {
		switch {
		case ctx.Err() != nil:
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			logger.ErrorContext(ctx, "request refused by the API server: check the credentials and RBAC of the controller", slog.Any("err", err))
		case mends(err) || !due(said, time.Now()):
			logger.DebugContext(ctx, "request failed, trying again", slog.Any("err", err))
		default:
			logger.WarnContext(ctx, "the API server's answer is none of an API server: check the address and the CA in the kubeconfig", slog.Any("err", err))
		}
	}
}

// sayAgain is how often the same trouble is said: every resource has it.
const sayAgain = time.Minute

func due(said *atomic.Int64, now time.Time) bool {
	last := said.Load()
	return now.Unix()-last >= int64(sayAgain.Seconds()) && said.CompareAndSwap(last, now.Unix())
}

// mends reports errors of a watch that pass by themselves: it expired, or its API server ends, starts or is busy.
func mends(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err) ||
		utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) ||
		// client-go has no type for what it says when a request could not even begin in time.
		strings.Contains(err.Error(), "client rate limiter Wait")
}
