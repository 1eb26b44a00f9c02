package oracle

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// ignoreForeignHints takes the hints for nodes from the endpoints of a Service port with a policy Local, unless each ready
// one is hinted to the node that it is on and to no other.
func ignoreForeignHints(c *Cluster) {
	for i := range c.Services {
		svc := &c.Services[i]
		if !usesLocal(svc) {
			continue
		}
		splitByPort(c, svc)
		ports := map[string][]*discoveryv1.EndpointSlice{}
		for j := range c.EndpointSlices {
			s := &c.EndpointSlices[j]
			if _, headless := s.Labels[corev1.IsHeadlessService]; !headless && len(s.Ports) > 0 && belongs(s, svc) {
				key := fmt.Sprintf("%s %s/%s", s.AddressType, *s.Ports[0].Name, *s.Ports[0].Protocol)
				ports[key] = append(ports[key], s)
			}
		}
		for _, of := range ports {
			if hintsForeign(of) {
				dropNodeHints(of)
			}
		}
	}
}

func usesLocal(svc *corev1.Service) bool {
	internal := svc.Spec.InternalTrafficPolicy
	outside := svc.Spec.Type == corev1.ServiceTypeLoadBalancer || svc.Spec.Type == corev1.ServiceTypeNodePort || len(svc.Spec.ExternalIPs) > 0
	return internal != nil && *internal == corev1.ServiceInternalTrafficPolicyLocal || outside && local(svc)
}

// splitByPort turns each slice of a Service into one for each port, which means the same.
func splitByPort(c *Cluster, svc *corev1.Service) {
	var all []discoveryv1.EndpointSlice
	for _, s := range c.EndpointSlices {
		if len(s.Ports) < 2 || !belongs(&s, svc) {
			all = append(all, s)
			continue
		}
		for i := range s.Ports {
			one := *s.DeepCopy()
			one.Name = fmt.Sprintf("%s-%d", s.Name, i)
			one.Ports = one.Ports[i : i+1]
			all = append(all, one)
		}
	}
	c.EndpointSlices = all
}

// hintsForeign looks at the endpoints of one port and family that are ready; of two with one address and port, at the one
// that is not terminating.
func hintsForeign(of []*discoveryv1.EndpointSlice) bool {
	winners := map[netip.AddrPort]discoveryv1.Endpoint{}
	for _, s := range of {
		for _, e := range s.Endpoints {
			a, err := netip.ParseAddr(e.Addresses[0])
			if err != nil || s.Ports[0].Port == nil || *s.Ports[0].Port == 0 {
				continue
			}
			at := netip.AddrPortFrom(a, uint16(*s.Ports[0].Port))
			if _, known := winners[at]; !known || !is(e.Conditions.Terminating, true) {
				winners[at] = e
			}
		}
	}
	for _, e := range winners {
		own := e.NodeName != nil && e.Hints != nil && len(e.Hints.ForNodes) == 1 && e.Hints.ForNodes[0].Name == *e.NodeName
		if !is(e.Conditions.Ready, false) && !own {
			return true
		}
	}
	return false
}

func dropNodeHints(of []*discoveryv1.EndpointSlice) {
	for _, s := range of {
		for i := range s.Endpoints {
			if h := s.Endpoints[i].Hints; h != nil {
				h.ForNodes = nil
			}
		}
	}
}
