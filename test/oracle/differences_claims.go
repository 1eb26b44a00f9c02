package oracle

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/proto/fwd"
)

// claim is a virtual IP, a protocol and a port.
type claim struct {
	addr     netip.Addr
	protocol fwd.Protocol
	port     uint16
}

// field is where a Service says that an address is its own; the lower one goes first.
type field uint8

const (
	clusterField field = iota
	loadBalancerField
	externalField
)

// owner is one Service and field that makes a claim.
type owner struct {
	service *corev1.Service
	field   field
}

// compare puts the one first that shall have it: a cluster IP before all others, then the older Service, then the smaller
// UID; within one Service, the load-balancer IP.
func (o owner) compare(other owner) int {
	if first := cmp.Compare(min(o.field, loadBalancerField), min(other.field, loadBalancerField)); first != 0 {
		return first
	}
	return cmp.Or(o.service.CreationTimestamp.Compare(other.service.CreationTimestamp.Time),
		strings.Compare(string(o.service.UID), string(other.service.UID)), cmp.Compare(o.field, other.field))
}

// owners are, by claim, all that make it, the one that shall have it first. Services that are not ours to forward claim
// nothing.
func owners(c *Cluster) map[claim][]owner {
	all := map[claim][]owner{}
	for i := range c.Services {
		svc := &c.Services[i]
		if _, other := svc.Labels[labelProxyName]; other || len(svc.Spec.ClusterIPs) == 0 || svc.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		for f, texts := range [][]string{clusterField: svc.Spec.ClusterIPs, loadBalancerField: loadBalancerIPs(svc), externalField: svc.Spec.ExternalIPs} {
			for _, k := range claims(svc, texts) {
				all[k] = append(all[k], owner{svc, field(f)})
			}
		}
	}
	for _, of := range all {
		slices.SortFunc(of, owner.compare)
	}
	return all
}

// claims are addresses at all ports of a Service, each once; those of a family that the Service lacks are nobody's.
func claims(svc *corev1.Service, texts []string) []claim {
	var all []claim
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || len(addrsOf(fwd.FamilyOf(a), svc.Spec.ClusterIPs...)) == 0 {
			continue
		}
		for _, p := range portsOf(svc) {
			protocol, err := fwd.ParseProtocol(string(p.Protocol))
			if k := (claim{a, protocol, uint16(p.Port)}); err == nil && !slices.Contains(all, k) {
				all = append(all, k)
			}
		}
	}
	return all
}

// loadBalancerIPs are those that nodes forward.
func loadBalancerIPs(svc *corev1.Service) []string {
	var ips []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" && (in.IPMode == nil || *in.IPMode == corev1.LoadBalancerIPModeVIP) {
			ips = append(ips, in.IP)
		}
	}
	return ips
}

// settleClaims takes each address from all Services but its owner. An address is a whole Service's and a claim one port's,
// so a Service that loses one is first split into one for each port.
func settleClaims(c *Cluster) {
	for i := len(c.Services) - 1; i >= 0; i-- {
		if losesAny(c, &c.Services[i]) {
			splitService(c, i)
		}
	}
	for k, of := range owners(c) {
		for _, loser := range of[1:] {
			spec, status := &loser.service.Spec, &loser.service.Status.LoadBalancer
			switch loser.field {
			case externalField:
				spec.ExternalIPs = slices.DeleteFunc(spec.ExternalIPs, func(ip string) bool { return ip == k.addr.String() })
			case clusterField: // the API server gives each away once
			case loadBalancerField:
				status.Ingress = slices.DeleteFunc(status.Ingress, func(in corev1.LoadBalancerIngress) bool { return in.IP == k.addr.String() })
			}
		}
	}
}

func losesAny(c *Cluster, svc *corev1.Service) bool {
	for _, of := range owners(c) {
		if slices.ContainsFunc(of[1:], func(o owner) bool { return o.service == svc }) {
			return true
		}
	}
	return false
}

// splitService puts in the place of Service i one for each of its ports, with its slices.
func splitService(c *Cluster, i int) {
	whole := c.Services[i]
	slicesOf := c.slicesOf(&whole)
	var parts []corev1.Service
	for n, port := range whole.Spec.Ports {
		part := *whole.DeepCopy()
		part.Name = fmt.Sprintf("%s-%d", whole.Name, n)
		part.Spec.Ports = []corev1.ServicePort{port}
		parts = append(parts, part)
		for _, s := range slicesOf {
			clone := *s.DeepCopy()
			clone.Name = fmt.Sprintf("%s-%d", s.Name, n)
			clone.Labels[discoveryv1.LabelServiceName] = part.Name
			c.EndpointSlices = append(c.EndpointSlices, clone)
		}
	}
	c.Services = slices.Replace(c.Services, i, i+1, parts...)
}
