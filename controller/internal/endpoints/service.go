package endpoints

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/proto/fwd"
)

// HasSelector reports whether the endpoints of a Service come from Pods. Without a selector, Endpoints and EndpointSlices
// are left to their author; ExternalName has no endpoints at all (SEMANTICS 1.1).
func HasSelector(svc *corev1.Service) bool {
	return len(svc.Spec.Selector) > 0 && svc.Spec.Type != corev1.ServiceTypeExternalName
}

// Selects reports whether a Pod is one of the Service's: the same namespace, and every label of the selector.
func Selects(svc *corev1.Service, pod *corev1.Pod) bool {
	if !HasSelector(svc) || svc.Namespace != pod.Namespace {
		return false
	}
	for label, value := range svc.Spec.Selector {
		if has, ok := pod.Labels[label]; !ok || has != value {
			return false
		}
	}
	return true
}

// Families lists the families of a Service: spec.ipFamilies, or where an old API server left that empty the family of the
// cluster IP, or both for a headless Service (SEMANTICS 1.7). The result is in the order of fwd.Families.
func Families(svc *corev1.Service) []fwd.Family {
	var families []fwd.Family
	for _, f := range fwd.Families() {
		if slices.Contains(svc.Spec.IPFamilies, corev1.IPFamily(f.String())) {
			families = append(families, f)
		}
	}
	if len(families) > 0 {
		return families
	}
	if ip, err := ParseAddr(svc.Spec.ClusterIP); err == nil {
		return []fwd.Family{fwd.FamilyOf(ip)}
	}
	return fwd.Families()
}

// HintsFromSlices reports whether the annotation service.kubernetes.io/topology-mode (or its predecessor, which goes
// first) asks for zone hints in proportion to the zones' CPUs (KEP-2433). Those depend on their own history, so the library
// that writes the slices computes them, and WithHints takes them from there.
func HintsFromSlices(svc *corev1.Service) bool {
	mode, ok := svc.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !ok {
		mode = svc.Annotations[corev1.AnnotationTopologyMode]
	}
	return mode == "Auto" || mode == "auto"
}
