package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
)

// describe writes everything that counts, one line for each group of endpoints and for each endpoint, in an order that does
// not depend on names that the API server generates. Each line says to which group it belongs, so that the lines of two
// clusters can be compared one by one. counted: the number of slices of a group counts as well.
func (p *publishedObjects) describe(counted bool) string {
	var lines []string
	sizes := map[string]int{}
	// used are the Services, families and authors that have a slice with endpoints.
	used := map[string]bool{}
	for i := range p.slices {
		s := &p.slices[i]
		if s.Namespace == metav1.NamespaceDefault || p.isOrphan(s) {
			continue
		}
		group := describeGroup(s)
		sizes[group]++
		used[s.Namespace+"/"+authorOf(s)] = used[s.Namespace+"/"+authorOf(s)] || len(s.Endpoints) > 0
		for j := range s.Endpoints {
			lines = append(lines, group+" endpoint "+describeEndpoint(s, &s.Endpoints[j]))
		}
	}
	for i := range p.slices {
		if s := &p.slices[i]; len(s.Endpoints) == 0 && used[s.Namespace+"/"+authorOf(s)] {
			delete(sizes, describeGroup(s)) // see upstream_differences_test.go; one that has endpoints too is not without ports
		}
	}
	for group, n := range sizes {
		if counted {
			group += " slices=" + strconv.Itoa(n)
		}
		lines = append(lines, group)
	}
	for i := range p.objects {
		if e := &p.objects[i]; e.Namespace != metav1.NamespaceDefault && !p.isRecord(e) {
			lines = append(lines, describeObject(e)...)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// isRecord: a leader election record without a Service.
func (p *publishedObjects) isRecord(e *corev1.Endpoints) bool {
	_, elected := e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey]
	return elected && !p.services[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}]
}

// describeGroup says all that slices have beside their endpoints.
func describeGroup(s *discoveryv1.EndpointSlice) string {
	var owners, ports []string
	for _, r := range s.OwnerReferences {
		owners = append(owners, fmt.Sprintf("%s/%s/%s controller=%t block=%t", r.APIVersion, r.Kind, r.Name, ptr.Deref(r.Controller, false), ptr.Deref(r.BlockOwnerDeletion, false)))
	}
	for _, p := range s.Ports {
		ports = append(ports, fmt.Sprintf("%s/%s/%s/%s", optional(p.Name), optional(p.Port), optional(p.Protocol), optional(p.AppProtocol)))
	}
	slices.Sort(ports)
	return fmt.Sprintf("%s slices %s owners=%v %s ports=%v", s.Namespace, describeMeta(s.ObjectMeta), owners, s.AddressType, ports)
}

// describeMeta leaves out what differs on purpose: see upstream_differences_test.go.
func describeMeta(m metav1.ObjectMeta) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		value := m.Labels[key]
		if strings.HasSuffix(key, "/managed-by") {
			value, _, _ = strings.Cut(value, ".")
		}
		words = append(words, key+"="+value)
	}
	words = append(words, "|")
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		if key != corev1.EndpointsLastChangeTriggerTime {
			words = append(words, key+"="+m.Annotations[key])
		}
	}
	return strings.Join(words, " ")
}

func describeEndpoint(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint) string {
	var hints []string
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			hints = append(hints, "zone "+z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			hints = append(hints, "node "+n.Name)
		}
	}
	return fmt.Sprintf("%v ready=%s serving=%s terminating=%s node=%s zone=%s host=%s target=%s hints=%v topology=%v", e.Addresses,
		optional(e.Conditions.Ready), optional(e.Conditions.Serving), optional(e.Conditions.Terminating),
		optional(e.NodeName), optional(e.Zone), optional(e.Hostname), describeTarget(e.TargetRef), hints, e.DeprecatedTopology)
}

func describeTarget(r *corev1.ObjectReference) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%s/%s/%s versioned=%t", r.Kind, r.Namespace, r.Name, r.ResourceVersion != "")
}

func describeObject(e *corev1.Endpoints) []string {
	head := fmt.Sprintf("%s endpoints %s %s", e.Namespace, e.Name, describeMeta(e.ObjectMeta))
	lines := []string{head}
	_, truncated := e.Annotations[corev1.EndpointsOverCapacity]
	ready, unready := 0, 0
	for i := range e.Subsets {
		s := &e.Subsets[i]
		ready, unready = ready+len(s.Addresses), unready+len(s.NotReadyAddresses)
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s/%d/%s/%s", p.Name, p.Port, p.Protocol, optional(p.AppProtocol)))
		}
		slices.Sort(ports)
		for _, a := range s.Addresses {
			lines = append(lines, fmt.Sprintf("%s ports=%v ready %s", head, ports, describeAddress(a)))
		}
		for _, a := range s.NotReadyAddresses {
			lines = append(lines, fmt.Sprintf("%s ports=%v unready %s", head, ports, describeAddress(a)))
		}
	}
	if truncated {
		return []string{fmt.Sprintf("%s ready=%d unready=%d", head, ready, unready)}
	}
	return lines
}

func describeAddress(a corev1.EndpointAddress) string {
	return fmt.Sprintf("%s node=%s host=%q target=%s", a.IP, optional(a.NodeName), a.Hostname, describeTarget(a.TargetRef))
}

// optional tells what is missing from what is empty.
func optional[T any](p *T) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprintf("%v", *p)
}

// authorOf is equal for slices of one Service, family and author.
func authorOf(s *discoveryv1.EndpointSlice) string {
	return strings.Join([]string{s.Labels[discoveryv1.LabelServiceName], string(s.AddressType), s.Labels[discoveryv1.LabelManagedBy]}, "/")
}
