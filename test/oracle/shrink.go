package oracle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Shrink drops from a cluster whatever it can without the failure going away, so that what is left is what matters. fails
// says whether a cluster still fails; c is not changed.
func Shrink(c *Cluster, fails func(*Cluster) bool) *Cluster {
	smallest := c.Clone()
	for smaller := true; smaller; {
		smaller = false
		for i := range len(cuts(smallest)) {
			candidate := smallest.Clone()
			cut := cuts(candidate)
			if i >= len(cut) {
				break
			}
			cut[i]()
			if fails(candidate) {
				smallest, smaller = candidate, true
				break
			}
		}
	}
	return smallest
}

// cuts are the single things that can be taken away from c, large ones first; each changes c. They depend on c's content
// alone, so that a clone has the same ones.
func cuts(c *Cluster) []func() {
	cut := slices.Concat(cutItems(&c.Services), cutItems(&c.EndpointSlices), cutItems(&c.OtherNodes))
	for i := range c.EndpointSlices {
		cut = append(cut, cutSlice(&c.EndpointSlices[i])...)
	}
	for i := range c.Services {
		cut = append(cut, cutService(&c.Services[i])...)
	}
	return append(cut, cutConfig(&c.Config)...)
}

// cutItems are the cuts that take one item away.
func cutItems[T any](items *[]T) []func() {
	var cut []func()
	for i := range *items {
		cut = append(cut, func() { *items = slices.Delete(*items, i, i+1) })
	}
	return cut
}

// cutValue is the cut that makes a value the zero value, unless it is.
func cutValue[T comparable](v *T) []func() {
	var zero T
	if *v == zero {
		return nil
	}
	return []func(){func() { *v = zero }}
}

func cutSlice(s *discoveryv1.EndpointSlice) []func() {
	cut := slices.Concat(cutItems(&s.Endpoints), cutItems(&s.Ports))
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		cut = append(cut, cutValue(&e.Hints)...)
		cut = append(cut, cutValue(&e.Zone)...)
		if len(e.Addresses) > 1 {
			cut = append(cut, func() { e.Addresses = e.Addresses[:1] })
		}
		if e.Hints != nil {
			cut = append(cut, slices.Concat(cutItems(&e.Hints.ForZones), cutItems(&e.Hints.ForNodes))...)
		}
	}
	return cut
}

func cutService(s *corev1.Service) []func() {
	cut := slices.Concat(cutItems(&s.Spec.ExternalIPs), cutItems(&s.Status.LoadBalancer.Ingress), cutItems(&s.Spec.LoadBalancerSourceRanges))
	if len(s.Spec.Ports) > 1 {
		cut = append(cut, cutItems(&s.Spec.Ports)...)
	}
	for i := range s.Spec.Ports {
		cut = append(cut, cutValue(&s.Spec.Ports[i].NodePort)...)
	}
	if s.Spec.SessionAffinityConfig != nil {
		cut = append(cut, func() { s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil })
	}
	cut = append(cut, cutValue(&s.Spec.HealthCheckNodePort)...)
	cut = append(cut, cutValue(&s.Spec.TrafficDistribution)...)
	cut = append(cut, cutValue(&s.Spec.InternalTrafficPolicy)...)
	return append(cut, cutValue(&s.Spec.PublishNotReadyAddresses)...)
}

func cutConfig(c *Config) []func() {
	cut := slices.Concat(cutValue(&c.DetectLocal), cutValue(&c.MasqueradeAll), cutValue(&c.LocalhostNodePorts),
		cutValue(&c.ConntrackLiberal), cutItems(&c.NodePortAddresses))
	if c.MasqueradeBit != 14 {
		cut = append(cut, func() { c.MasqueradeBit = 14 })
	}
	return cut
}
