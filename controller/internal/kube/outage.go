package kube

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// When nodes lose the API server, the node lifecycle controller sets their Nodes to Ready=Unknown and their Pods to
// Ready=False, though nobody knows anything about these Pods. If that happens to most Nodes at once, it is the control
// plane that is cut off, and believing it would empty every Service (k/k#77864, #105617). What a kubelet reports is
// always believed.
//
// Nodes that are lost together are not marked together: kubelets renew their Leases every ten seconds, the controller looks
// every five. So what it says of a Pod is doubted at first, until the other Nodes had their time.

// outageLinger is how long an outage of Nodes goes on after its end: a kubelet that is back corrects its Pods' status up to
// ten seconds later.
const outageLinger = time.Minute

// outageDoubt is how long the node lifecycle controller's word is doubted: longer than Nodes that are lost together are
// marked apart.
const outageDoubt = 20 * time.Second

// outage says whether Pods' unreadiness is held back. Safe for concurrent use. The zero value holds nothing back.
type outage struct {
	on atomic.Bool
	// doubts: the word on a Pod counts only after accept.
	doubts atomic.Bool

	mu       sync.Mutex // guards accepted
	accepted map[podID]struct{}
}

// podID tells a Pod from its successors.
type podID struct {
	namespace, name string
	uid             types.UID
}

func idOf(p *corev1.Pod) podID { return podID{p.Namespace, p.Name, p.UID} }

// accept has the word on a Pod believed from now on, unless most Nodes are lost; retract forgets that.
func (o *outage) accept(p *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.accepted == nil {
		o.accepted = map[podID]struct{}{}
	}
	o.accepted[idOf(p)] = struct{}{}
}

func (o *outage) retract(p *corev1.Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.accepted, idOf(p))
}

// believes reports whether the word on a Pod counts.
func (o *outage) believes(p *corev1.Pod) bool {
	if o.on.Load() {
		return false
	}
	if !o.doubts.Load() {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.accepted[idOf(p)]
	return ok
}

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

// believed returns the Pods as they are to be taken.
func (o *outage) believed(pods []*corev1.Pod) []*corev1.Pod {
	for i, p := range pods {
		if assertedUnready(p) && !o.believes(p) {
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
