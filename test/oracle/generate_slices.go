package oracle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/proto/fwd"
)

// profile is what the endpoints of one Service have in common; without it, no list would ever be empty, and hints never be
// complete.
type profile struct {
	conditions []discoveryv1.EndpointConditions
	nodes      []int // 0 is a node that nobody knows
	// zoneHints and nodeHints: how many of 100 endpoints have them.
	zoneHints, nodeHints int
	// ownHints: the hint is where the endpoint is; else anywhere.
	ownHints bool
}

func conditions(ready, serving, terminating *bool) discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}
}

func (g *generator) profile() profile {
	yes, no := ptr(true), ptr(false)
	ready := []discoveryv1.EndpointConditions{conditions(yes, yes, no), conditions(yes, nil, nil), conditions(nil, nil, nil)}
	draining := []discoveryv1.EndpointConditions{conditions(no, yes, yes)}
	gone := []discoveryv1.EndpointConditions{conditions(no, no, no), conditions(no, no, yes), conditions(no, yes, no)}
	// Ready while terminating is what publishNotReadyAddresses makes.
	all := append(append(append([]discoveryv1.EndpointConditions{conditions(yes, yes, yes)}, ready...), draining...), gone...)
	p := profile{conditions: pick(g, ready, ready, all, all, append(draining, gone...), gone)}
	p.nodes = pick(g, []int{1, 2, 3}, []int{1, 2, 3, 0}, []int{1, 1, 1, 2}, []int{2, 3}, []int{1})
	p.zoneHints, p.nodeHints = pick(g, 0, 0, 100, 100, 70), pick(g, 0, 0, 0, 100, 70)
	p.ownHints = g.chance(60)
	return p
}

// slices adds the EndpointSlices of a Service.
func (g *generator) slices(svc *corev1.Service, families []fwd.Family) {
	p := g.profile()
	for _, family := range families {
		for range pick(g, 0, 1, 1, 1, 2, 2) {
			g.slice(svc, family, p)
		}
	}
	if g.chance(4) {
		g.circle(svc, families[0])
	}
	if g.chance(6) { // a family that the Service does not have
		g.slice(svc, pick(g, fwd.Families()...), p)
	}
	if g.chance(4) {
		g.slice(svc, families[0], p)
		last := &g.cluster.EndpointSlices[len(g.cluster.EndpointSlices)-1]
		switch g.IntN(3) {
		case 0:
			last.Labels[corev1.IsHeadlessService] = ""
		case 1:
			last.AddressType = discoveryv1.AddressTypeFQDN
			last.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"db.example.net"}}}
		case 2:
			last.Labels[discoveryv1.LabelServiceName] = "no-such-service"
		}
	}
}

// circle adds a slice whose endpoint is the Service's own cluster IP and port.
func (g *generator) circle(svc *corev1.Service, family fwd.Family) {
	g.slice(svc, family, profile{conditions: []discoveryv1.EndpointConditions{{}}, nodes: []int{0}})
	last := &g.cluster.EndpointSlices[len(g.cluster.EndpointSlices)-1]
	last.Endpoints, last.Ports = []discoveryv1.Endpoint{{Addresses: []string{addr(family, "10.96.0.0", "fd00:96::", 10+g.used["service"])}}}, nil
	for _, port := range svc.Spec.Ports {
		last.Ports = append(last.Ports, discoveryv1.EndpointPort{Name: ptr(port.Name), Protocol: ptr(port.Protocol), Port: ptr(port.Port)})
	}
}

func (g *generator) slice(svc *corev1.Service, family fwd.Family, p profile) {
	slice := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: fmt.Sprintf("%s-%d", svc.Name, g.count("slice")), Labels: map[string]string{
			discoveryv1.LabelServiceName: svc.Name, discoveryv1.LabelManagedBy: "oracle.example.net",
		}},
		AddressType: discoveryv1.AddressType(family.String()),
	}
	for _, port := range svc.Spec.Ports {
		number := pick[int32](g, 8080, 8080, 8443) + port.Port
		target := discoveryv1.EndpointPort{Name: ptr(port.Name), Protocol: ptr(port.Protocol), Port: &number}
		switch g.IntN(30) {
		case 0:
			continue // a named port that these Pods do not have
		case 1:
			target.Port = pick(g, nil, ptr[int32](0))
		case 2:
			target.Protocol = ptr(g.protocol())
		}
		slice.Ports = append(slice.Ports, target)
	}
	for range g.IntN(4) {
		e := g.endpoint(family, p)
		if twin := twin(append(g.cluster.slicesOf(svc), slice), e); twin != nil {
			e = *twin
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	g.cluster.EndpointSlices = append(g.cluster.EndpointSlices, slice)
}

// twin finds an endpoint that a Service has already, with the same address and as good a claim to it. kube-proxy takes the
// one that is not terminating; of two that are alike in this, any.
func twin(of []discoveryv1.EndpointSlice, e discoveryv1.Endpoint) *discoveryv1.Endpoint {
	for _, s := range of {
		for i := range s.Endpoints {
			other := &s.Endpoints[i]
			if other.Addresses[0] == e.Addresses[0] && is(other.Conditions.Terminating, true) == is(e.Conditions.Terminating, true) {
				return other
			}
		}
	}
	return nil
}

func (g *generator) endpoint(family fwd.Family, p profile) discoveryv1.Endpoint {
	node := pick(g, p.nodes...)
	e := discoveryv1.Endpoint{Conditions: pick(g, p.conditions...)}
	switch {
	case g.chance(4): // a hostNetwork Pod
		e.Addresses = []string{nodeAddr(family, max(node, 1))}
	case g.chance(4): // listed twice, or an address that went from a terminating Pod to a new one
		e.Addresses = []string{podAddr(family, node, 10)}
	case g.chance(2):
		e.Addresses = []string{pick(g, map[fwd.Family][]string{
			fwd.IPv4: {"127.0.0.1", "169.254.1.1", "224.0.0.1"}, fwd.IPv6: {"::1", "fe80::1", "ff02::1"},
		}[family]...)}
	default:
		e.Addresses = []string{podAddr(family, node, 10+g.count("pod"))}
	}
	if g.chance(5) { // only the first counts
		e.Addresses = append(e.Addresses, podAddr(family, node, 200))
	}
	zone := ""
	if node > 0 {
		e.NodeName = ptr(fmt.Sprintf("node-%d", node))
		zone = g.node(node).Labels[corev1.LabelTopologyZone]
	}
	if zone != "" {
		e.Zone = &zone
	}
	hints := discoveryv1.EndpointHints{}
	if !p.ownHints || zone == "" {
		zone = pick(g, "a", "b", "c")
	}
	if g.chance(p.zoneHints) {
		hints.ForZones = []discoveryv1.ForZone{{Name: zone}}
		if !p.ownHints && g.chance(30) {
			hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: pick(g, "a", "b", "c")})
		}
	}
	if g.chance(p.nodeHints) {
		hints.ForNodes = []discoveryv1.ForNode{{Name: fmt.Sprintf("node-%d", max(node, 1))}}
	}
	if len(hints.ForZones)+len(hints.ForNodes) > 0 {
		e.Hints = &hints
	}
	return e
}

func (g *generator) node(n int) *corev1.Node {
	if n == 1 {
		return &g.cluster.Node
	}
	return &g.cluster.OtherNodes[n-2]
}
