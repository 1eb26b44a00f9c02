package oracle

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/proto/fwd"
)

// refuseUnfitVirtual takes addresses that no endpoint may have from load-balancer IPs and external IPs too.
func refuseUnfitVirtual(c *Cluster) {
	for i := range c.Services {
		dropPublic(&c.Services[i], func(a netip.Addr) bool { return unfit(a.String()) }, true)
	}
}

// dropPublic takes the load-balancer IPs that match from a Service, and external IPs that match: all, or those alone that are
// load-balancer IPs as well.
func dropPublic(svc *corev1.Service, match func(netip.Addr) bool, external bool) {
	matches := func(text string) bool {
		a, err := netip.ParseAddr(text)
		return err == nil && match(a)
	}
	balancers := loadBalancerIPs(svc)
	svc.Spec.ExternalIPs = slices.DeleteFunc(svc.Spec.ExternalIPs, func(ip string) bool {
		return matches(ip) && (external || slices.Contains(balancers, ip))
	})
	status := &svc.Status.LoadBalancer
	status.Ingress = slices.DeleteFunc(status.Ingress, func(in corev1.LoadBalancerIngress) bool { return matches(in.IP) })
}

// closeUnreadable takes the load-balancer IPs of a family from Services with source ranges that cannot be read and none of
// that family that can.
func closeUnreadable(c *Cluster) {
	for i := range c.Services {
		svc := &c.Services[i]
		unreadable, readable := false, map[fwd.Family]bool{}
		for _, text := range svc.Spec.LoadBalancerSourceRanges {
			if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
				readable[fwd.FamilyOf(p.Addr())] = true
			} else {
				unreadable = true
			}
		}
		if unreadable {
			dropPublic(svc, func(a netip.Addr) bool { return !readable[fwd.FamilyOf(a)] }, false)
		}
	}
}

// maxPorts is how many ports of a Service are forwarded.
const maxPorts = 1000

// cutPorts leaves the first ports of each Service.
func cutPorts(c *Cluster) {
	for i := range c.Services {
		c.Services[i].Spec.Ports = portsOf(&c.Services[i])
	}
}

// portsOf are the ports of a Service that are forwarded.
func portsOf(svc *corev1.Service) []corev1.ServicePort {
	return svc.Spec.Ports[:min(len(svc.Spec.Ports), maxPorts)]
}
