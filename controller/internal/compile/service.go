package compile

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// maxAffinity is the longest affinity time-out that the API allows, in seconds: one day.
const maxAffinity = 86400

// forwards reports whether the Service is ours to forward: it has a cluster IP (SEMANTICS 1.1: not headless, not
// ExternalName) and does not belong to another proxy (2.7).
func (cfg *Config) forwards(svc *corev1.Service) bool {
	if svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == "" || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return false
	}
	name, labelled := svc.Labels[labelProxyName]
	return name == cfg.ServiceProxyName && labelled == (cfg.ServiceProxyName != "")
}

// read returns what a Service asks for: one ServicePort for each port and family, sorted by name, before claims are
// settled and endpoints are looked at. It keeps nothing of svc but strings.
func (cfg *Config) read(svc *corev1.Service) ([]fwd.ServicePort, []endpoints.Problem) {
	if !cfg.forwards(svc) {
		return nil, nil
	}
	findings := endpoints.Findings{}
	ports := boundedPorts(svc, findings)
	var all []fwd.ServicePort
	for _, family := range fwd.Families() {
		common, ok := cfg.readAddresses(svc, family, findings)
		if !ok {
			continue
		}
		common.InternalLocal = internalLocal(svc)
		common.ExternalLocal = externalLocal(svc)
		common.HealthCheckNodePort = healthCheckNodePort(svc)
		common.AffinitySeconds = affinity(svc)
		common.Scheduler = scheduler(svc, findings)
		for i := range ports {
			if sp, ok := readPort(common, &ports[i], findings); ok {
				all = append(all, sp)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b fwd.ServicePort) int { return a.PortName.Compare(b.PortName) })
	all = slices.CompactFunc(all, func(first, next fwd.ServicePort) bool {
		if first.PortName != next.PortName {
			return false
		}
		findings.Add(endpoints.Finding{Reason: ReasonInvalidPort, Text: "ports left out"},
			"spec.ports[].name: %q/%v is there twice", next.PortName.Port, next.Protocol)
		return true
	})
	return all, findings.Problems()
}

// boundedPorts cuts a Service with too many ports.
func boundedPorts(svc *corev1.Service, findings endpoints.Findings) []corev1.ServicePort {
	if len(svc.Spec.Ports) <= MaxPorts {
		return svc.Spec.Ports
	}
	findings.Add(endpoints.Finding{Reason: ReasonTooManyPorts, Text: "spec.ports"},
		"%d ports, of which the first %d are forwarded: split the Service", len(svc.Spec.Ports), MaxPorts)
	return svc.Spec.Ports[:MaxPorts]
}

// readPort adds one port to what all ports of the Service have in common.
func readPort(common fwd.ServicePort, p *corev1.ServicePort, findings endpoints.Findings) (fwd.ServicePort, bool) {
	bad := endpoints.Finding{Reason: ReasonInvalidPort, Text: "ports left out"}
	sp := common
	sp.PortName.Port = p.Name
	protocol, err := fwd.ParseProtocol(string(p.Protocol))
	if err != nil {
		findings.Add(bad, "spec.ports[].protocol of port %q: %v", p.Name, err)
		return sp, false
	}
	sp.Protocol = protocol
	if p.Port < 1 || p.Port > 65535 {
		findings.Add(bad, "spec.ports[].port of port %q: %d, want 1 to 65535", p.Name, p.Port)
		return sp, false
	}
	sp.Port = uint16(p.Port)
	if p.NodePort < 0 || p.NodePort > 65535 {
		findings.Add(endpoints.Finding{Reason: ReasonInvalidPort, Text: "node ports left out"},
			"spec.ports[].nodePort of port %q: %d, want 1 to 65535", p.Name, p.NodePort)
	} else {
		sp.NodePort = uint16(p.NodePort)
	}
	return sp, true
}

// internalLocal: cluster-internal traffic stays on its node (KEP-2086).
func internalLocal(svc *corev1.Service) bool {
	return svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
}

// externalLocal: traffic from outside stays on its node. The policy counts where the Service has a way in from outside.
func externalLocal(svc *corev1.Service) bool {
	outside := svc.Spec.Type == corev1.ServiceTypeLoadBalancer || svc.Spec.Type == corev1.ServiceTypeNodePort ||
		len(svc.Spec.ExternalIPs) > 0
	return outside && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// healthCheckNodePort is for load balancers that want to know which nodes have local endpoints.
func healthCheckNodePort(svc *corev1.Service) uint16 {
	p := svc.Spec.HealthCheckNodePort
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || !externalLocal(svc) || p < 1 || p > 65535 {
		return 0
	}
	return uint16(p)
}

// affinity is the time-out of ClientIP affinity in seconds, 0 for no affinity.
func affinity(svc *corev1.Service) uint32 {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	c := svc.Spec.SessionAffinityConfig
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return uint32(corev1.DefaultClientIPServiceAffinitySeconds)
	}
	return uint32(min(max(*c.ClientIP.TimeoutSeconds, 1), maxAffinity))
}

// scheduler reads the IPVS scheduler. The kernel's names are at most 15 lower case letters; whether it has the one asked
// for is known on the node.
func scheduler(svc *corev1.Service, findings endpoints.Findings) string {
	name := svc.Annotations[AnnotationScheduler]
	if len(name) > 15 || slices.ContainsFunc([]byte(name), func(b byte) bool { return b < 'a' || b > 'z' }) {
		findings.Add(endpoints.Finding{Reason: ReasonInvalidScheduler, Text: "annotation " + AnnotationScheduler},
			"%q: want the name of a scheduler such as rr; the default is used", name)
		return ""
	}
	return name
}

// clusterIP is the Service's virtual IP of a family, the first one that can be read.
func clusterIP(svc *corev1.Service, family fwd.Family) (ip netip.Addr, ok bool) {
	texts := svc.Spec.ClusterIPs
	if len(texts) == 0 {
		texts = []string{svc.Spec.ClusterIP}
	}
	for _, text := range texts {
		if a, err := endpoints.ParseAddr(text); err == nil && fwd.FamilyOf(a) == family {
			return a, true
		}
	}
	return netip.Addr{}, false
}
