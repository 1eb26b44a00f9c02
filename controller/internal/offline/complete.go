package offline

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// The functions below do for manifests written by hand what the API server does on creation, as far as tables depend on
// it: defaults, and names that are names.

func completeMeta(m *metav1.ObjectMeta) error {
	if m.Namespace == "" {
		m.Namespace = metav1.NamespaceDefault
	}
	for _, f := range []struct{ field, value string }{{"metadata.namespace", m.Namespace}, {"metadata.name", m.Name}} {
		if wrong := validation.IsDNS1123Subdomain(f.value); len(wrong) > 0 {
			return fmt.Errorf("%s: %q: %s", f.field, f.value, strings.Join(wrong, ", "))
		}
	}
	return nil
}

func completeService(s *corev1.Service) error {
	if s.Spec.Type == "" {
		s.Spec.Type = corev1.ServiceTypeClusterIP
	}
	if s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) > 0 {
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	if s.Spec.ClusterIP == "" && s.Spec.Type != corev1.ServiceTypeExternalName {
		return errors.New("spec.clusterIP: is empty: set it, or take the Service from a cluster (kubectl get -o yaml)")
	}
	if len(s.Spec.ClusterIPs) == 0 {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if len(s.Spec.IPFamilies) == 0 {
		for _, ip := range s.Spec.ClusterIPs {
			if a, err := endpoints.ParseAddr(ip); err == nil {
				s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily(fwd.FamilyOf(a).String()))
			}
		}
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Name != "" && len(validation.IsDNS1123Label(p.Name)) > 0 {
			return fmt.Errorf("spec.ports[%d].name: %q: want lower case letters, digits and '-'", i, p.Name)
		}
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}
		if p.TargetPort == (intstr.IntOrString{}) {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	return completeMeta(&s.ObjectMeta)
}

func completePod(p *corev1.Pod) error {
	if len(p.Status.PodIPs) == 0 && p.Status.PodIP != "" {
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	}
	for _, containers := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			for j := range containers[i].Ports {
				if port := &containers[i].Ports[j]; port.Protocol == "" {
					port.Protocol = corev1.ProtocolTCP
				}
			}
		}
	}
	return completeMeta(&p.ObjectMeta)
}

// mirrored returns the slices that the Endpoints object of a Service without a selector and without slices stands for
// (SEMANTICS 1.10).
func (o *Objects) mirrored(svc *corev1.Service, written []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	e, ok := o.endpoints[key(svc)]
	if !ok || len(written) > 0 || e.Labels[discoveryv1.LabelSkipMirror] == "true" {
		return nil
	}
	var mirror []*discoveryv1.EndpointSlice
	for _, subset := range e.Subsets {
		for _, family := range fwd.Families() {
			mirror = append(mirror, mirrorSubset(svc, &subset, family))
		}
	}
	return mirror
}

func mirrorSubset(svc *corev1.Service, subset *corev1.EndpointSubset, family fwd.Family) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, Name: svc.Name, Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: discoveryv1.AddressType(family.String()),
	}
	for _, p := range subset.Ports {
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.Port})
	}
	add := func(addresses []corev1.EndpointAddress, ready bool) {
		for _, a := range addresses {
			if ip, err := endpoints.ParseAddr(a.IP); err == nil && fwd.FamilyOf(ip) != family {
				continue
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{a.IP}, NodeName: a.NodeName,
				Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
			})
		}
	}
	add(subset.Addresses, true)
	add(subset.NotReadyAddresses, false)
	return slice
}
