package kube

import (
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// When nodes lose the API server, the node lifecycle controller sets their Nodes to Ready=Unknown and their Pods to
// Ready=False, though nobody knows anything about these Pods. If that happens to most Nodes at once, it is the control
// plane that is cut off, and believing it would empty every Service (k/k#77864, #105617). What a kubelet reports is
// always believed.

// outageLinger is how long an outage of Nodes goes on after its end: a kubelet that is back corrects its Pods' status up to
// ten seconds later.
const outageLinger = time.Minute

// outage says whether Pods' unreadiness is held back. Safe for concurrent use.
type outage struct{ on atomic.Bool }

// cutOff reports whether more than a share (0 to 1) of the Nodes are out of reach of the control plane.
func cutOff(nodes []*corev1.Node, share float64) bool {
	unknown := 0
	for _, n := range nodes {
		if unreachable(n) {
			unknown++
		}
	}
	return unknown > 0 && float64(unknown) > share*float64(len(nodes))
}

func unreachable(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// assertedUnready reports whether a Pod is unready by the node lifecycle controller's word alone: its containers are ready,
// and Ready=False has no reason. A kubelet gives one: it has containers or readiness gates that are not ready.
func assertedUnready(p *corev1.Pod) bool {
	return conditionOf(p, corev1.ContainersReady) == corev1.ConditionTrue &&
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason == ""
		})
}

// believed returns the Pods as their kubelets last reported them.
func (o *outage) believed(pods []*corev1.Pod) []*corev1.Pod {
	if !o.on.Load() {
		return pods
	}
	for i, p := range pods {
		if assertedUnready(p) {
			pods[i] = ready(p)
		}
	}
	return pods
}

// ready returns a copy of a Pod with Ready=True.
func ready(p *corev1.Pod) *corev1.Pod {
	kept := *p
	kept.Status.Conditions = slices.Clone(p.Status.Conditions)
	for i := range kept.Status.Conditions {
		if c := &kept.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status = corev1.ConditionTrue
		}
	}
	return &kept
}
