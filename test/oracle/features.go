package oracle

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Feature is something that clusters must contain often enough for the comparison to mean anything.
type Feature struct {
	Name string
	Has  func(*Cluster) bool
}

// Features lists all of them.
func Features() []Feature {
	return slices.Concat(serviceFeatures(), externalFeatures(), endpointFeatures(), hintFeatures(), configFeatures())
}

// service is a Feature of a cluster with such a Service.
func service(name string, has func(*corev1.Service) bool) Feature {
	return Feature{name, func(c *Cluster) bool {
		for i := range c.Services {
			if has(&c.Services[i]) {
				return true
			}
		}
		return false
	}}
}

// endpoint is a Feature of a cluster with such an endpoint in a slice of its own node's families.
func endpoint(name string, has func(*discoveryv1.Endpoint) bool) Feature {
	return Feature{name, func(c *Cluster) bool {
		for i := range c.EndpointSlices {
			for j := range c.EndpointSlices[i].Endpoints {
				if has(&c.EndpointSlices[i].Endpoints[j]) {
					return true
				}
			}
		}
		return false
	}}
}

func slice(name string, has func(*discoveryv1.EndpointSlice) bool) Feature {
	return Feature{name, func(c *Cluster) bool {
		return slices.ContainsFunc(c.EndpointSlices, func(s discoveryv1.EndpointSlice) bool { return has(&s) })
	}}
}

func config(name string, has func(*Config) bool) Feature {
	return Feature{name, func(c *Cluster) bool { return has(&c.Config) }}
}

func hasPort(name string, has func(corev1.ServicePort) bool) Feature {
	return service(name, func(s *corev1.Service) bool { return slices.ContainsFunc(s.Spec.Ports, has) })
}

func serviceFeatures() []Feature {
	var all []Feature
	for _, t := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName} {
		all = append(all, service("type "+string(t), func(s *corev1.Service) bool { return s.Spec.Type == t }))
	}
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		all = append(all, hasPort("protocol "+string(p), func(port corev1.ServicePort) bool { return port.Protocol == p }))
	}
	return append(all,
		service("headless", func(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone }),
		service("of another proxy", func(s *corev1.Service) bool { _, ok := s.Labels[labelProxyName]; return ok }),
		service("IPv4 alone", func(s *corev1.Service) bool { return slices.Equal(s.Spec.IPFamilies, []corev1.IPFamily{"IPv4"}) }),
		service("IPv6 alone", func(s *corev1.Service) bool { return slices.Equal(s.Spec.IPFamilies, []corev1.IPFamily{"IPv6"}) }),
		service("dual stack", func(s *corev1.Service) bool { return len(s.Spec.IPFamilies) == 2 }),
		service("several ports", func(s *corev1.Service) bool { return len(s.Spec.Ports) > 1 }),
		service("one port, two protocols", func(s *corev1.Service) bool {
			p := s.Spec.Ports
			return len(p) > 1 && slices.ContainsFunc(p[1:], func(other corev1.ServicePort) bool { return other.Port == p[0].Port })
		}),
		hasPort("named port", func(p corev1.ServicePort) bool { return p.Name != "" }),
		hasPort("unnamed port", func(p corev1.ServicePort) bool { return p.Name == "" }),
		hasPort("node port", func(p corev1.ServicePort) bool { return p.NodePort != 0 }),
		service("internal policy Local", func(s *corev1.Service) bool {
			return s.Spec.InternalTrafficPolicy != nil && *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
		}),
		service("external policy Local", func(s *corev1.Service) bool { return local(s) }),
		service("external policy Cluster", func(s *corev1.Service) bool {
			return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyCluster
		}),
		service("affinity", func(s *corev1.Service) bool { return s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP }),
		service("affinity, policy Local", func(s *corev1.Service) bool {
			return s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && local(s)
		}),
		service("traffic distribution", func(s *corev1.Service) bool { return s.Spec.TrafficDistribution != nil }),
		service("topology annotation", func(s *corev1.Service) bool { return s.Annotations[corev1.AnnotationTopologyMode] != "" }),
		service("publishNotReadyAddresses", func(s *corev1.Service) bool { return s.Spec.PublishNotReadyAddresses }),
	)
}

func local(s *corev1.Service) bool {
	return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func externalFeatures() []Feature {
	ingress := func(name string, has func(corev1.LoadBalancerIngress) bool) Feature {
		return service(name, func(s *corev1.Service) bool { return slices.ContainsFunc(s.Status.LoadBalancer.Ingress, has) })
	}
	ranges := func(name string, has func(string) bool) Feature {
		return service(name, func(s *corev1.Service) bool {
			return len(s.Status.LoadBalancer.Ingress) > 0 && slices.ContainsFunc(s.Spec.LoadBalancerSourceRanges, has)
		})
	}
	return []Feature{
		service("external IP", func(s *corev1.Service) bool { return len(s.Spec.ExternalIPs) > 0 }),
		service("external IP, type ClusterIP", func(s *corev1.Service) bool {
			return len(s.Spec.ExternalIPs) > 0 && s.Spec.Type == corev1.ServiceTypeClusterIP
		}),
		service("external IP, policy Local", func(s *corev1.Service) bool { return len(s.Spec.ExternalIPs) > 0 && local(s) }),
		service("external IP that is unfit", func(s *corev1.Service) bool { return slices.ContainsFunc(s.Spec.ExternalIPs, unfit) }),
		service("external IP of the node", func(s *corev1.Service) bool { return slices.Contains(s.Spec.ExternalIPs, "192.0.2.1") }),
		ingress("load-balancer IP, mode nil", func(in corev1.LoadBalancerIngress) bool { return in.IP != "" && in.IPMode == nil }),
		ingress("load-balancer IP, mode VIP", func(in corev1.LoadBalancerIngress) bool {
			return in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeVIP
		}),
		ingress("load-balancer IP, mode Proxy", func(in corev1.LoadBalancerIngress) bool {
			return in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy
		}),
		ingress("load-balancer IP that is unfit", func(in corev1.LoadBalancerIngress) bool { return unfit(in.IP) }),
		ingress("load-balancer host name", func(in corev1.LoadBalancerIngress) bool { return in.Hostname != "" }),
		service("load balancer without an address", func(s *corev1.Service) bool {
			return s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0
		}),
		service("load balancer without node ports", func(s *corev1.Service) bool { return s.Spec.AllocateLoadBalancerNodePorts != nil }),
		service("health check node port", func(s *corev1.Service) bool { return s.Spec.HealthCheckNodePort != 0 }),
		ranges("source range", func(string) bool { return true }),
		ranges("source range /0", func(r string) bool { return strings.HasSuffix(r, "/0") }),
		ranges("source range with white space", func(r string) bool { return strings.TrimSpace(r) != r }),
		ranges("source range with the node", func(r string) bool { return strings.HasPrefix(r, "192.0.2.") || strings.HasPrefix(r, "fd00:c::") }),
		service("source ranges of one family", func(s *corev1.Service) bool {
			v6 := func(r string) bool { return strings.Contains(r, ":") }
			r := s.Spec.LoadBalancerSourceRanges
			return len(r) > 0 && (!slices.ContainsFunc(r, v6) || !slices.ContainsFunc(r, func(r string) bool { return !v6(r) }))
		}),
		{"virtual IP claimed twice", func(c *Cluster) bool {
			for _, of := range owners(c) {
				if len(of) > 1 {
					return true
				}
			}
			return false
		}},
	}
}

func is(p *bool, v bool) bool { return p != nil && *p == v }

func endpointFeatures() []Feature {
	return []Feature{
		endpoint("ready", func(e *discoveryv1.Endpoint) bool { return is(e.Conditions.Ready, true) }),
		endpoint("all conditions nil", func(e *discoveryv1.Endpoint) bool { return e.Conditions == discoveryv1.EndpointConditions{} }),
		endpoint("ready, serving nil", func(e *discoveryv1.Endpoint) bool { return is(e.Conditions.Ready, true) && e.Conditions.Serving == nil }),
		endpoint("not ready", func(e *discoveryv1.Endpoint) bool {
			return is(e.Conditions.Ready, false) && is(e.Conditions.Serving, false) && is(e.Conditions.Terminating, false)
		}),
		endpoint("serving and terminating", func(e *discoveryv1.Endpoint) bool {
			return is(e.Conditions.Ready, false) && is(e.Conditions.Serving, true) && is(e.Conditions.Terminating, true)
		}),
		endpoint("terminating, not serving", func(e *discoveryv1.Endpoint) bool {
			return is(e.Conditions.Serving, false) && is(e.Conditions.Terminating, true)
		}),
		endpoint("ready while terminating", func(e *discoveryv1.Endpoint) bool {
			return is(e.Conditions.Ready, true) && is(e.Conditions.Terminating, true)
		}),
		endpoint("on this node", func(e *discoveryv1.Endpoint) bool { return e.NodeName != nil && *e.NodeName == thisNode }),
		endpoint("on another node", func(e *discoveryv1.Endpoint) bool { return e.NodeName != nil && *e.NodeName != thisNode }),
		endpoint("on no node", func(e *discoveryv1.Endpoint) bool { return e.NodeName == nil }),
		endpoint("on the host network", func(e *discoveryv1.Endpoint) bool {
			return e.Addresses[0] == "192.0.2.1" || e.Addresses[0] == "fd00:c::1"
		}),
		endpoint("several addresses", func(e *discoveryv1.Endpoint) bool { return len(e.Addresses) > 1 }),
		endpoint("unfit address", func(e *discoveryv1.Endpoint) bool { return unfit(e.Addresses[0]) }),
		{"endpoint that is a virtual IP", func(c *Cluster) bool {
			owners := owners(c)
			return slices.ContainsFunc(c.EndpointSlices, func(s discoveryv1.EndpointSlice) bool {
				return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return virtual(owners, &s, e) })
			})
		}},
		slice("slice of IPv4", func(s *discoveryv1.EndpointSlice) bool { return s.AddressType == discoveryv1.AddressTypeIPv4 }),
		slice("slice of IPv6", func(s *discoveryv1.EndpointSlice) bool { return s.AddressType == discoveryv1.AddressTypeIPv6 }),
		slice("slice of names", func(s *discoveryv1.EndpointSlice) bool { return s.AddressType == discoveryv1.AddressTypeFQDN }),
		slice("slice labelled headless", func(s *discoveryv1.EndpointSlice) bool { _, ok := s.Labels[corev1.IsHeadlessService]; return ok }),
		slice("slice of no Service", func(s *discoveryv1.EndpointSlice) bool {
			return s.Labels[discoveryv1.LabelServiceName] == "no-such-service"
		}),
		slice("slice with a port of no number", func(s *discoveryv1.EndpointSlice) bool {
			return slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return p.Port == nil || *p.Port == 0 })
		}),
		{"same endpoint twice", sameEndpointTwice},
		service("no slice at all", func(*corev1.Service) bool { return true }).without(slicesAll),
		{"one Service, several slices of a family", func(c *Cluster) bool {
			seen := map[string]int{}
			for _, s := range c.EndpointSlices {
				seen[s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName]+string(s.AddressType)]++
			}
			return len(seen) < len(c.EndpointSlices)
		}},
	}
}

// without turns a Feature of any Service into one of clusters where not every Service has what all asks for.
func (f Feature) without(all func(*Cluster) bool) Feature {
	return Feature{f.Name, func(c *Cluster) bool { return f.Has(c) && !all(c) }}
}

func slicesAll(c *Cluster) bool {
	for i := range c.Services {
		if len(c.slicesOf(&c.Services[i])) == 0 {
			return false
		}
	}
	return true
}

func sameEndpointTwice(c *Cluster) bool {
	seen := map[string]bool{}
	for _, s := range c.EndpointSlices {
		for _, e := range s.Endpoints {
			key := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName] + " " + e.Addresses[0]
			if seen[key] {
				return true
			}
			seen[key] = true
		}
	}
	return false
}
