package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
)

// pageSize is how many objects a fresh list asks for at once. A list in pages is answered from the API server's storage
// rather than from its cache of watched objects.
const pageSize = 500

// List reads everything anew that tables are computed from: Services, Nodes, EndpointSlices, and Pods if wanted. The result
// is complete and does not change. It costs the API server as much as a start of this program.
func List(ctx context.Context, client kubernetes.Interface, pods bool) (*Objects, error) {
	still := func(example runtime.Object) toolscache.SharedIndexInformer {
		return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, example, 0, toolscache.Indexers{}) // never run
	}
	from := Informers{Services: still(&corev1.Service{}), Nodes: still(&corev1.Node{}), Slices: still(&discoveryv1.EndpointSlice{})}
	if pods {
		from.Pods = still(&corev1.Pod{})
	}
	o, err := NewObjects(from)
	if err != nil {
		return nil, err
	}
	core := client.CoreV1()
	err = fill(ctx, o.services, func(options metav1.ListOptions) (string, []corev1.Service, error) {
		l, err := core.Services("").List(ctx, options)
		if err != nil {
			return "", nil, err
		}
		return l.Continue, l.Items, nil
	})
	if err == nil {
		err = fill(ctx, o.nodes, func(options metav1.ListOptions) (string, []corev1.Node, error) {
			l, err := core.Nodes().List(ctx, options)
			if err != nil {
				return "", nil, err
			}
			return l.Continue, l.Items, nil
		})
	}
	if err == nil {
		err = fill(ctx, o.slices, func(options metav1.ListOptions) (string, []discoveryv1.EndpointSlice, error) {
			l, err := client.DiscoveryV1().EndpointSlices("").List(ctx, options)
			if err != nil {
				return "", nil, err
			}
			return l.Continue, l.Items, nil
		})
	}
	if err == nil && pods {
		err = fill(ctx, o.pods, func(options metav1.ListOptions) (string, []corev1.Pod, error) {
			l, err := core.Pods("").List(ctx, options)
			if err != nil {
				return "", nil, err
			}
			return l.Continue, l.Items, nil
		})
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// fill puts all pages of a list into an index, each object stripped as a watched one is.
func fill[T any](ctx context.Context, into toolscache.SharedIndexInformer, list func(metav1.ListOptions) (next string, page []T, err error)) error {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		next, page, err := list(options)
		if err != nil {
			return fmt.Errorf("list %T: %w", *new(T), err)
		}
		for i := range page {
			kept, err := strip(&page[i])
			if err == nil {
				err = into.GetIndexer().Add(kept)
			}
			if err != nil {
				return fmt.Errorf("index %T: %w", page[i], err)
			}
		}
		if next == "" || ctx.Err() != nil {
			return ctx.Err()
		}
		options.Continue = next
	}
}
