package publish

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// maxMirrored is how many addresses of one subset are mirrored: as many as one slice may hold.
const maxMirrored = 1000

// mirrors returns the slices that say what an Endpoints object says (SEMANTICS 1.10), one for each family and set of
// ports, sorted, without names; and how many addresses were left out as malformed and as too many.
func mirrors(e *corev1.Endpoints) (wanted []*discoveryv1.EndpointSlice, invalid, excess int) {
	for _, subset := range pack(e.Subsets) {
		byFamily := map[fwd.Family]*discoveryv1.EndpointSlice{}
		room := maxMirrored
		take := func(addresses []corev1.EndpointAddress, ready bool) {
			for _, a := range addresses {
				endpoint, family, ok := mirrored(a, ready)
				switch {
				case !ok:
					invalid++
					continue
				case room == 0:
					excess++
					continue
				}
				room--
				if byFamily[family] == nil {
					byFamily[family] = newMirror(e, family, subset.Ports)
				}
				byFamily[family].Endpoints = append(byFamily[family].Endpoints, endpoint)
			}
		}
		take(subset.Addresses, true)
		take(subset.NotReadyAddresses, false)
		for _, family := range fwd.Families() {
			if s := byFamily[family]; s != nil {
				wanted = append(wanted, s)
			}
		}
	}
	return wanted, invalid, excess
}

func mirrored(a corev1.EndpointAddress, ready bool) (discoveryv1.Endpoint, fwd.Family, bool) {
	ip, err := endpoints.ParseAddr(a.IP)
	if err != nil {
		return discoveryv1.Endpoint{}, 0, false
	}
	endpoint := discoveryv1.Endpoint{
		Addresses:  []string{ip.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		NodeName:   a.NodeName, TargetRef: a.TargetRef,
	}
	if a.Hostname != "" {
		endpoint.Hostname = &a.Hostname
	}
	return endpoint, fwd.FamilyOf(ip), true
}

// newMirror returns a slice without endpoints. It takes over the object's labels and annotations but those that concern
// the object alone.
func newMirror(e *corev1.Endpoints, family fwd.Family, ports []corev1.EndpointPort) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, GenerateName: prefix(e.Name),
			Labels: map[string]string{}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(e, corev1.SchemeGroupVersion.WithKind("Endpoints"))},
		},
		AddressType: discoveryv1.AddressType(family.String()),
		Ports:       make([]discoveryv1.EndpointPort, 0, len(ports)),
	}
	maps.Copy(s.Labels, e.Labels)
	s.Labels[discoveryv1.LabelServiceName] = e.Name
	s.Labels[discoveryv1.LabelManagedBy] = MirrorController
	maps.Copy(s.Annotations, e.Annotations)
	delete(s.Annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(s.Annotations, corev1.LastAppliedConfigAnnotation)
	for _, p := range ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	return s
}

// prefix is what the generated name of a slice begins with, within the length that a name may have.
func prefix(name string) string {
	const longest = 253 - 1
	return name[:min(len(name), longest-5)] + "-"
}

// steps are the writes that turn slices into wanted ones.
type steps struct {
	create, update, remove []*discoveryv1.EndpointSlice
}

// mirrorSteps compares what is with what should be. A slice of the same family is written over rather than removed beside a
// new one, so that a change of ports leaves no moment without endpoints. Neither argument is changed; names of wanted
// slices that are updates are set.
func mirrorSteps(existing, wanted []*discoveryv1.EndpointSlice) steps {
	var st steps
	left := map[string][]*discoveryv1.EndpointSlice{}
	spare := map[discoveryv1.AddressType][]*discoveryv1.EndpointSlice{}
	for _, s := range slices.SortedFunc(slices.Values(existing), func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) }) {
		left[kindOf(s)] = append(left[kindOf(s)], s)
	}
	var homeless []*discoveryv1.EndpointSlice
	for _, w := range wanted {
		kind := kindOf(w)
		if len(left[kind]) == 0 {
			homeless = append(homeless, w)
			continue
		}
		have := left[kind][0]
		left[kind] = left[kind][1:]
		if !sameMirror(have, w) {
			st.update = append(st.update, over(have, w))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(left)) {
		for _, s := range left[kind] {
			spare[s.AddressType] = append(spare[s.AddressType], s)
		}
	}
	for _, w := range homeless {
		if s := spare[w.AddressType]; len(s) > 0 {
			st.update = append(st.update, over(s[0], w))
			spare[w.AddressType] = s[1:]
		} else {
			st.create = append(st.create, w)
		}
	}
	for _, t := range slices.Sorted(maps.Keys(spare)) {
		st.remove = append(st.remove, spare[t]...)
	}
	return st
}

// over returns what is wanted, to be written over a slice that is.
func over(have, wanted *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	w := wanted.DeepCopy()
	w.Name, w.GenerateName, w.UID, w.ResourceVersion = have.Name, have.GenerateName, have.UID, have.ResourceVersion
	return w
}

// kindOf is equal for slices of one family and set of ports.
func kindOf(s *discoveryv1.EndpointSlice) string {
	ports := make([]string, 0, len(s.Ports))
	for _, p := range s.Ports {
		ports = append(ports, fmt.Sprintf("%s %d %s %s", value(p.Name), value(p.Port), value(p.Protocol), value(p.AppProtocol)))
	}
	slices.Sort(ports)
	return string(s.AddressType) + "\n" + strings.Join(ports, "\n")
}

// sameMirror reports whether a slice says what is wanted already.
func sameMirror(have, wanted *discoveryv1.EndpointSlice) bool {
	return maps.Equal(have.Labels, wanted.Labels) && maps.Equal(have.Annotations, wanted.Annotations) &&
		equality.Semantic.DeepEqual(have.OwnerReferences, wanted.OwnerReferences) &&
		equality.Semantic.DeepEqual(sortedEndpoints(have), sortedEndpoints(wanted))
}

func sortedEndpoints(s *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
	return slices.SortedFunc(slices.Values(s.Endpoints), func(a, b discoveryv1.Endpoint) int {
		return cmp.Or(slices.Compare(a.Addresses, b.Addresses), strings.Compare(uidOf(a), uidOf(b)))
	})
}

func uidOf(e discoveryv1.Endpoint) string {
	if e.TargetRef == nil {
		return ""
	}
	return string(e.TargetRef.UID)
}

func value[T any](p *T) T {
	if p == nil {
		var none T
		return none
	}
	return *p
}
