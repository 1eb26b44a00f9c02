package oracle

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead/fairlead/proto/fwd"
)

// service adds a Service without a selector and EndpointSlices for it. It may hold what the API server lets through and
// nothing that it would refuse or fill in.
func (g *generator) service() {
	n := g.count("service")
	svc := corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: pick(g, "default", "shop"), Name: fmt.Sprintf("svc-%d", n), UID: types.UID(fmt.Sprintf("uid-%d", n)),
		Labels: map[string]string{}, Annotations: map[string]string{},
		CreationTimestamp: metav1.Unix(int64(1700000000+n), 0),
	}}
	svc.Spec.Type = pick(g, corev1.ServiceTypeClusterIP, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer)
	families := g.families()
	for _, f := range families {
		svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, corev1.IPFamily(f.String()))
		svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, addr(f, "10.96.0.0", "fd00:96::", 10+n))
	}
	svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	g.ports(&svc)
	g.policies(&svc)
	g.external(&svc)
	g.oddities(&svc)
	g.cluster.Services = append(g.cluster.Services, svc)
	g.slices(&svc, families)
}

func (g *generator) ports(svc *corev1.Service) {
	for i := range 1 + g.IntN(3) {
		name := fmt.Sprintf("p%d", i)
		port := corev1.ServicePort{Name: name, Protocol: g.protocol(), Port: int32(80 + i), TargetPort: intstr.FromString(name)}
		first := corev1.ServicePort{}
		if i > 0 {
			first = svc.Spec.Ports[0]
		}
		taken := slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.Port == first.Port && p.Protocol == port.Protocol
		})
		if i > 0 && !taken && g.chance(50) {
			port.Port = first.Port // one number, two protocols
		}
		if svc.Spec.Type != corev1.ServiceTypeClusterIP {
			port.NodePort = int32(30000 + g.count("node port"))
		}
		svc.Spec.Ports = append(svc.Spec.Ports, port)
	}
	if len(svc.Spec.Ports) == 1 && g.chance(30) {
		svc.Spec.Ports[0].Name = ""
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && g.chance(20) {
		svc.Spec.AllocateLoadBalancerNodePorts = new(bool)
		for i := range svc.Spec.Ports {
			svc.Spec.Ports[i].NodePort = 0
		}
	}
}

func (g *generator) protocol() corev1.Protocol {
	return pick(g, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

func (g *generator) policies(svc *corev1.Service) {
	internal := corev1.ServiceInternalTrafficPolicyCluster
	if g.chance(25) {
		internal = corev1.ServiceInternalTrafficPolicyLocal
	}
	svc.Spec.InternalTrafficPolicy = &internal
	if svc.Spec.Type != corev1.ServiceTypeClusterIP {
		svc.Spec.ExternalTrafficPolicy = pick(g, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	svc.Spec.SessionAffinity = corev1.ServiceAffinityNone
	if g.chance(20) {
		seconds := pick[int32](g, 1, 60, 10800, 86400)
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	if g.chance(15) {
		where := pick(g, corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode)
		svc.Spec.TrafficDistribution = &where
	}
	svc.Spec.PublishNotReadyAddresses = g.chance(5)
}

// external adds the ways in from outside.
func (g *generator) external(svc *corev1.Service) {
	if g.chance(25) {
		for range 1 + g.IntN(2) {
			svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, g.externalIP(pick(g, fwd.Families()...)))
		}
		svc.Spec.ExternalTrafficPolicy = pick(g, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	}
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	for range g.IntN(4) {
		in := corev1.LoadBalancerIngress{IP: g.loadBalancerIP(pick(g, fwd.Families()...)), IPMode: pick(g, nil, ptr(corev1.LoadBalancerIPModeVIP))}
		if g.chance(15) {
			in.IPMode = ptr(corev1.LoadBalancerIPModeProxy)
		}
		if g.chance(8) {
			in = corev1.LoadBalancerIngress{Hostname: "lb.example.net"}
		}
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, in)
	}
	if g.chance(45) {
		for range 1 + g.IntN(3) {
			svc.Spec.LoadBalancerSourceRanges = append(svc.Spec.LoadBalancerSourceRanges, pick(g,
				"198.18.0.0/25", " 198.18.0.0/25", "10.0.0.0/8 ", "192.0.2.0/24", "192.0.2.1/32", "203.0.113.0/24",
				"2001:db8:c::/120", "fd00:244::/32", "fd00:c::/64", "0.0.0.0/0", "::/0"))
		}
	}
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		svc.Spec.HealthCheckNodePort = int32(32000 + g.count("health check"))
	}
}

func ptr[T any](v T) *T { return &v }

// externalIP is mostly one of its own, now and then one of another Service or of the node.
func (g *generator) externalIP(f fwd.Family) string {
	switch {
	case g.chance(4):
		return nodeAddr(f, 1)
	case g.chance(6):
		return addr(f, "203.0.113.128", "2001:db8:1b::", 1)
	case g.chance(4):
		return pick(g, unfitVirtualIPs(f)[1:]...) // the API server refuses loopback in this field
	}
	return addr(f, "203.0.113.0", "2001:db8:e::", g.count("external IP")+pick(g, 0, 0, 40))
}

func (g *generator) loadBalancerIP(f fwd.Family) string {
	switch {
	case g.chance(4):
		return nodeAddr(f, 1)
	case g.chance(4):
		return pick(g, unfitVirtualIPs(f)...)
	}
	return addr(f, "203.0.113.128", "2001:db8:1b::", g.count("load-balancer IP"))
}

// unfitVirtualIPs reach into the node: a loopback address, and those of groups.
func unfitVirtualIPs(f fwd.Family) []string {
	if f == fwd.IPv6 {
		return []string{"::1", "ff05::7", "ff0e::7"}
	}
	return []string{"127.0.0.7", "239.1.1.7", "255.255.255.255"}
}

// oddities are what makes a Service another one's business.
func (g *generator) oddities(svc *corev1.Service) {
	switch g.IntN(25) {
	case 0:
		svc.Labels[labelProxyName] = pick(g, "other-proxy", "")
	case 1:
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		svc.Spec.Type, svc.Status.LoadBalancer.Ingress, svc.Spec.HealthCheckNodePort = corev1.ServiceTypeClusterIP, nil, 0
		svc.Spec.ExternalIPs = nil
		for i := range svc.Spec.Ports {
			svc.Spec.Ports[i].NodePort = 0
		}
	case 2:
		spec := corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.net", Ports: slices.Clone(svc.Spec.Ports)}
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
		svc.Spec, svc.Status = spec, corev1.ServiceStatus{}
	case 3:
		svc.Annotations[corev1.AnnotationTopologyMode] = "Auto"
	}
}
