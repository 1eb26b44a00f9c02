package publish

import (
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// maxAddresses is how many addresses an Endpoints object holds; more are left out, with the annotation overCapacity.
const (
	maxAddresses = 1000
	truncated    = "truncated"
)

// subsetsOf returns what the Endpoints object of a Service with a selector says (SEMANTICS 1.9): the addresses of the
// Service's primary family, packed, before they are truncated. Unlike slices it has no terminating Pods, unless the Service
// publishes addresses that are not ready.
func subsetsOf(svc *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	var subsets []corev1.EndpointSubset
	for _, pod := range pods {
		if !endpointsliceutil.ShouldPodBeInEndpoints(pod, svc.Spec.PublishNotReadyAddresses) {
			continue
		}
		address, ok := addressOf(svc, pod)
		if !ok {
			continue
		}
		ready := svc.Spec.PublishNotReadyAddresses || endpointsliceutil.IsPodReady(pod)
		if len(svc.Spec.Ports) == 0 && svc.Spec.ClusterIP == corev1.ClusterIPNone {
			subsets = append(subsets, subsetOf(address, ready, nil))
		}
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			number, err := endpointslice.FindPort(pod, p)
			if err != nil {
				continue // SEMANTICS 1.6: the Pod drops out for a named port that it lacks
			}
			subsets = append(subsets, subsetOf(address, ready, []corev1.EndpointPort{
				{Name: p.Name, Port: int32(number), Protocol: p.Protocol, AppProtocol: p.AppProtocol}, //nolint:gosec // a port
			}))
		}
	}
	return pack(subsets)
}

func subsetOf(a corev1.EndpointAddress, ready bool, ports []corev1.EndpointPort) corev1.EndpointSubset {
	if ready {
		return corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{a}, Ports: ports}
	}
	return corev1.EndpointSubset{NotReadyAddresses: []corev1.EndpointAddress{a}, Ports: ports}
}

// addressOf returns the Pod's first address of the Service's primary family.
func addressOf(svc *corev1.Service, pod *corev1.Pod) (corev1.EndpointAddress, bool) {
	family := primaryFamily(svc, pod)
	for _, ip := range pod.Status.PodIPs {
		a, err := endpoints.ParseAddr(ip.IP)
		if err != nil || fwd.FamilyOf(a) != family {
			continue
		}
		node := pod.Spec.NodeName
		address := corev1.EndpointAddress{
			IP: a.String(), NodeName: &node,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		}
		if endpointsliceutil.ShouldSetHostname(pod, svc) {
			address.Hostname = pod.Spec.Hostname
		}
		return address, true
	}
	return corev1.EndpointAddress{}, false
}

// primaryFamily is the first of spec.ipFamilies, else that of the cluster IP, else that of the Pod.
func primaryFamily(svc *corev1.Service, pod *corev1.Pod) fwd.Family {
	if len(svc.Spec.IPFamilies) > 0 {
		if svc.Spec.IPFamilies[0] == corev1.IPv6Protocol {
			return fwd.IPv6
		}
		return fwd.IPv4
	}
	for _, ip := range []string{svc.Spec.ClusterIP, pod.Status.PodIP} {
		if a, err := endpoints.ParseAddr(ip); err == nil {
			return fwd.FamilyOf(a)
		}
	}
	return fwd.IPv4
}

// truncate leaves maxAddresses addresses: the ready ones first, then those that are not, each subset giving in proportion;
// a subset that is left with none goes, as the API server refuses it. It says whether anything was left out. Packed input
// gives the same output each time; the input is used up.
func truncate(subsets []corev1.EndpointSubset) ([]corev1.EndpointSubset, bool) {
	ready, unready := 0, 0
	for i := range subsets {
		ready += len(subsets[i].Addresses)
		unready += len(subsets[i].NotReadyAddresses)
	}
	switch {
	case ready+unready <= maxAddresses:
		return subsets, false
	case ready > maxAddresses:
		cut(subsets, share{total: ready, room: maxAddresses}, func(s *corev1.EndpointSubset) *[]corev1.EndpointAddress {
			s.NotReadyAddresses = nil
			return &s.Addresses
		})
	default:
		cut(subsets, share{total: unready, room: maxAddresses - ready}, func(s *corev1.EndpointSubset) *[]corev1.EndpointAddress {
			return &s.NotReadyAddresses
		})
	}
	return slices.DeleteFunc(subsets, func(s corev1.EndpointSubset) bool {
		return len(s.Addresses)+len(s.NotReadyAddresses) == 0
	}), true
}

// share says how many of how many addresses may stay.
type share struct{ total, room int }

func cut(subsets []corev1.EndpointSubset, s share, of func(*corev1.EndpointSubset) *[]corev1.EndpointAddress) {
	left := s.room
	for i := range subsets {
		addresses := of(&subsets[i])
		part := int(math.Ceil(float64(len(*addresses)) / float64(s.total) * float64(s.room)))
		*addresses = (*addresses)[:min(part, left, len(*addresses))]
		left -= len(*addresses)
	}
}

// object returns the Endpoints object that should be, made from the one that is (nil where there is none), or nil where
// the one that is will do. trigger is the time for the annotation; zero removes it.
func object(svc *corev1.Service, pods []*corev1.Pod, current *corev1.Endpoints, trigger time.Time) *corev1.Endpoints {
	wanted := &corev1.Endpoints{}
	wanted.Namespace, wanted.Name = svc.Namespace, svc.Name
	if current != nil {
		wanted = current.DeepCopy()
	}
	subsets, cut := truncate(subsetsOf(svc, pods))
	wanted.Subsets = subsets
	setAnnotation(wanted, corev1.EndpointsOverCapacity, truncated, cut)
	wanted.Labels = objectLabels(svc)
	if current != nil && sameObject(current, wanted) {
		return nil
	}
	setAnnotation(wanted, corev1.EndpointsLastChangeTriggerTime, trigger.UTC().Format(time.RFC3339Nano), !trigger.IsZero())
	return wanted
}

// objectLabels are the Service's, and who wrote the object.
func objectLabels(svc *corev1.Service) map[string]string {
	labels := make(map[string]string, len(svc.Labels)+2)
	maps.Copy(labels, svc.Labels)
	if svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.ClusterIP == "" {
		labels[corev1.IsHeadlessService] = ""
	} else {
		delete(labels, corev1.IsHeadlessService)
	}
	labels[LabelEndpointsManagedBy] = ObjectController
	return labels
}

// sameObject reports whether two Endpoints objects say the same, the time of their last change aside. Both are compared as
// they would be written, so that a truncated object is not written again either.
func sameObject(a, b *corev1.Endpoints) bool {
	return maps.Equal(a.Labels, b.Labels) &&
		a.Annotations[corev1.EndpointsOverCapacity] == b.Annotations[corev1.EndpointsOverCapacity] &&
		equality.Semantic.DeepEqual(withoutVersions(pack(a.Subsets)), withoutVersions(pack(b.Subsets)))
}

// withoutVersions drops the version of the Pod that an old controller may have noted.
func withoutVersions(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	for i := range subsets {
		for _, addresses := range [][]corev1.EndpointAddress{subsets[i].Addresses, subsets[i].NotReadyAddresses} {
			for j := range addresses {
				if ref := addresses[j].TargetRef; ref != nil && ref.ResourceVersion != "" {
					plain := *ref
					plain.ResourceVersion = ""
					addresses[j].TargetRef = &plain
				}
			}
		}
	}
	return subsets
}

func setAnnotation(e *corev1.Endpoints, name, value string, there bool) {
	switch {
	case there && e.Annotations == nil:
		e.Annotations = map[string]string{name: value}
	case there:
		e.Annotations[name] = value
	default:
		delete(e.Annotations, name)
	}
}

// isForeign reports Endpoints objects that are no Service's: the API server's own, and the leader election records of old
// clients. They are never mirrored. The former are never written; a Service with a selector that has the name of one of the
// latter gets its endpoints all the same, as upstream has it.
func isForeign(e *corev1.Endpoints) bool {
	_, elected := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	return elected || isServers(e)
}

// isServers reports the object that the API server writes itself.
func isServers(e *corev1.Endpoints) bool {
	return e.Namespace == corev1.NamespaceDefault && e.Name == "kubernetes"
}
