package kube

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// samePod reports whether two states of a stripped Pod make the same endpoints of the same Services: most updates of Pods
// (container restarts, annotations) do.
func samePod(a, b *corev1.Pod) bool {
	return a.UID == b.UID &&
		a.Spec.NodeName == b.Spec.NodeName &&
		a.Spec.Hostname == b.Spec.Hostname && a.Spec.Subdomain == b.Spec.Subdomain &&
		a.Status.Phase == b.Status.Phase &&
		a.Status.PodIP == b.Status.PodIP && slices.Equal(a.Status.PodIPs, b.Status.PodIPs) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		conditionOf(a, corev1.PodReady) == conditionOf(b, corev1.PodReady) && assertedUnready(a) == assertedUnready(b) &&
		maps.Equal(a.Labels, b.Labels)
}

func conditionOf(p *corev1.Pod, t corev1.PodConditionType) corev1.ConditionStatus {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return p.Status.Conditions[i].Status
		}
	}
	return ""
}

// sameNode reports whether two states of a stripped Node differ in nothing but their version.
func sameNode(a, b *corev1.Node) bool {
	return a.UID == b.UID &&
		maps.Equal(a.Labels, b.Labels) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec) &&
		equality.Semantic.DeepEqual(a.Status, b.Status)
}

func zoneOf(n *corev1.Node) string { return n.Labels[corev1.LabelTopologyZone] }
