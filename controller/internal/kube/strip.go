package kube

import (
	"maps"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// strip is the transform of every watched object: it returns a copy that holds what this program reads, with strings that
// recur (labels, node names, zones) stored once. What it does not know it passes on, tombstones among them. It is
// idempotent, as client-go asks.
func strip(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return stripPod(o), nil
	case *corev1.Node:
		return stripNode(o), nil
	case *corev1.Service:
		return stripService(o), nil
	case *discoveryv1.EndpointSlice:
		return stripSlice(o), nil
	case *corev1.Endpoints:
		return stripEndpoints(o), nil
	case *metav1.PartialObjectMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta, ObjectMeta: identity(&o.ObjectMeta)}, nil
	default:
		return obj, nil
	}
}

// stripPod keeps what decides where a Pod is an endpoint: labels, addresses, conditions, named ports.
func stripPod(p *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{
		ObjectMeta: identity(&p.ObjectMeta),
		Spec:       corev1.PodSpec{NodeName: intern(p.Spec.NodeName), Hostname: p.Spec.Hostname, Subdomain: intern(p.Spec.Subdomain)},
		Status:     corev1.PodStatus{Phase: corev1.PodPhase(intern(string(p.Status.Phase))), PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs},
	}
	kept.Labels = internMap(p.Labels)
	for i := range p.Status.Conditions {
		// ContainersReady tells a kubelet's verdict from the node lifecycle controller's, which writes Ready alone.
		switch c := &p.Status.Conditions[i]; c.Type {
		case corev1.PodReady, corev1.ContainersReady:
			kept.Status.Conditions = append(kept.Status.Conditions, corev1.PodCondition{
				Type:               corev1.PodConditionType(intern(string(c.Type))),
				Status:             corev1.ConditionStatus(intern(string(c.Status))),
				LastTransitionTime: c.LastTransitionTime,
				Reason:             intern(c.Reason),
			})
		default:
		}
	}
	kept.Spec.Containers = namedPorts(p.Spec.Containers, func(*corev1.Container) bool { return true })
	kept.Spec.InitContainers = namedPorts(p.Spec.InitContainers, isSidecar)
	return kept
}

// isSidecar reports whether an init container keeps running beside the Pod's containers (KEP-753).
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// namedPorts gathers the named ports of the containers that count in one container, in their order: a Service's named
// targetPort is looked up in them and in nothing else.
func namedPorts(containers []corev1.Container, counts func(*corev1.Container) bool) []corev1.Container {
	var ports []corev1.ContainerPort
	var policy *corev1.ContainerRestartPolicy
	for i := range containers {
		if !counts(&containers[i]) {
			continue
		}
		policy = containers[i].RestartPolicy
		for _, port := range containers[i].Ports {
			if port.Name != "" {
				ports = append(ports, corev1.ContainerPort{
					Name:          intern(port.Name),
					ContainerPort: port.ContainerPort,
					Protocol:      corev1.Protocol(intern(string(port.Protocol))),
				})
			}
		}
	}
	if len(ports) == 0 {
		return nil
	}
	return []corev1.Container{{Ports: ports, RestartPolicy: policy}}
}

// stripNode keeps what decides zones, eligibility and the node's facts, and the allocatable CPU (which topology hints of
// mode Auto are shared out by). Heartbeats are left out, so that they change nothing.
func stripNode(n *corev1.Node) *corev1.Node {
	kept := &corev1.Node{
		ObjectMeta: identity(&n.ObjectMeta),
		Spec:       corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
	}
	kept.Labels = internMap(n.Labels)
	if cpu, ok := n.Status.Allocatable[corev1.ResourceCPU]; ok {
		kept.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: cpu}
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return kept
}

// stripService drops managed fields and the last applied configuration; the rest of a Service is small and used.
func stripService(s *corev1.Service) *corev1.Service {
	kept := *s
	kept.TypeMeta = metav1.TypeMeta{}
	kept.ManagedFields = nil
	kept.Annotations = withoutLastApplied(s.Annotations)
	return &kept
}

// stripSlice drops managed fields alone: what is published is compared with, and written over, the whole of a slice. (An
// update that leaves managed fields out keeps those that are there.)
func stripSlice(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	kept := *s
	kept.TypeMeta = metav1.TypeMeta{}
	kept.ManagedFields = nil
	kept.Labels = internMap(s.Labels)
	kept.Endpoints = make([]discoveryv1.Endpoint, len(s.Endpoints))
	truth := &booleans{yes: true}
	for i := range s.Endpoints {
		e := s.Endpoints[i]
		e.NodeName = internPointer(e.NodeName)
		e.Zone = internPointer(e.Zone)
		e.Conditions = discoveryv1.EndpointConditions{
			Ready:       truth.pointer(e.Conditions.Ready),
			Serving:     truth.pointer(e.Conditions.Serving),
			Terminating: truth.pointer(e.Conditions.Terminating),
		}
		e.TargetRef = internReference(e.TargetRef)
		kept.Endpoints[i] = e
	}
	return &kept
}

// stripEndpoints drops managed fields; see stripSlice. The leader election annotation of old clients stays: it says that
// an Endpoints object is no Service's.
func stripEndpoints(e *corev1.Endpoints) *corev1.Endpoints {
	kept := *e
	kept.TypeMeta = metav1.TypeMeta{}
	kept.ManagedFields = nil
	kept.Labels = internMap(e.Labels)
	kept.Subsets = make([]corev1.EndpointSubset, len(e.Subsets))
	for i, subset := range e.Subsets {
		kept.Subsets[i] = corev1.EndpointSubset{
			Addresses:         stripAddresses(subset.Addresses),
			NotReadyAddresses: stripAddresses(subset.NotReadyAddresses),
			Ports:             subset.Ports,
		}
	}
	return &kept
}

func stripAddresses(addresses []corev1.EndpointAddress) []corev1.EndpointAddress {
	if addresses == nil {
		return nil
	}
	kept := make([]corev1.EndpointAddress, len(addresses))
	for i, a := range addresses {
		a.NodeName = internPointer(a.NodeName)
		a.TargetRef = internReference(a.TargetRef)
		kept[i] = a
	}
	return kept
}

// identity keeps what names an object and its version.
func identity(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:         intern(m.Namespace),
		Name:              m.Name,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp,
	}
}

func withoutLastApplied(annotations map[string]string) map[string]string {
	if _, there := annotations[corev1.LastAppliedConfigAnnotation]; !there {
		return annotations
	}
	kept := maps.Clone(annotations)
	delete(kept, corev1.LastAppliedConfigAnnotation)
	return kept
}

// intern returns an equal string that is stored once in the process, as long as somebody holds it.
func intern(s string) string { return unique.Make(s).Value() }

func internPointer(s *string) *string {
	if s == nil {
		return nil
	}
	kept := intern(*s)
	return &kept
}

func internMap(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	kept := make(map[string]string, len(m))
	for k, v := range m {
		kept[intern(k)] = intern(v)
	}
	return kept
}

func internReference(r *corev1.ObjectReference) *corev1.ObjectReference {
	if r == nil {
		return nil
	}
	kept := *r
	kept.Kind, kept.Namespace = intern(kept.Kind), intern(kept.Namespace)
	return &kept
}

// booleans holds the two truth values that all conditions of one slice point to, instead of three values per endpoint.
type booleans struct{ no, yes bool }

func (t *booleans) pointer(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &t.yes
	default:
		return &t.no
	}
}
