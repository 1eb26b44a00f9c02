package kube

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Agents returns the Pods in the agents' namespace, which agents' tokens may be bound to, in no order. Their nodes are known
// where Pods are watched in full.
func (o *Objects) Agents(namespace string) []fwd.AgentPod {
	var pods []fwd.AgentPod
	for _, p := range indexed[*corev1.Pod](o.pods, toolscache.NamespaceIndex, namespace) {
		pods = append(pods, fwd.AgentPod{Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName})
	}
	for _, p := range indexed[*metav1.PartialObjectMetadata](o.agents, toolscache.NamespaceIndex, namespace) {
		pods = append(pods, fwd.AgentPod{Name: p.Name, UID: string(p.UID)})
	}
	return pods
}

// OnAgents calls changed whenever Agents may return something else, and before it returns, until ctx ends.
func (o *Objects) OnAgents(ctx context.Context, namespace string, changed func()) error {
	if o.pods == nil {
		return follow(ctx, o.agents, func(before, now *metav1.PartialObjectMetadata) {
			if before == nil || now == nil || before.UID != now.UID {
				changed()
			}
		})
	}
	return follow(ctx, o.pods, func(before, now *corev1.Pod) {
		if cmp.Or(now, before).Namespace != namespace {
			return
		}
		if before == nil || now == nil || before.UID != now.UID || before.Spec.NodeName != now.Spec.NodeName {
			changed()
		}
	})
}

// follow calls f for each object and each change until ctx ends; it returns when f has seen the first list.
func follow[T any](ctx context.Context, informer toolscache.SharedIndexInformer, f func(before, now *T)) error {
	wait, err := subscribe(ctx, informer, f)
	if err != nil {
		return err
	}
	return wait()
}
