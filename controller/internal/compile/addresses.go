package compile

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// readAddresses returns a ServicePort with what all ports of the Service have in common in one family: its name and its
// addresses. ok is false if the Service has no cluster IP of the family.
func (cfg *Config) readAddresses(svc *corev1.Service, family fwd.Family, findings endpoints.Findings) (sp fwd.ServicePort, ok bool) {
	ip, ok := clusterIP(svc, family)
	if !ok {
		return sp, false
	}
	if err := fwd.ValidAddr(ip, family); err != nil {
		findings.Add(endpoints.Finding{Reason: ReasonInvalidIP, Text: "virtual IPs left out"}, "spec.clusterIPs: %v", err)
		return sp, false
	}
	sp = fwd.ServicePort{
		PortName:  fwd.PortName{Namespace: svc.Namespace, Name: svc.Name, Family: family},
		ClusterIP: ip,
	}
	balancers := without(loadBalancerIPs(svc, family, findings), ip)
	// An address that is both external and load-balancer IP is kept as the latter, whose source ranges then hold.
	sp.ExternalIPs = without(cfg.externalIPs(svc, family, findings), append(balancers, ip)...)
	ranges, closed := sourceRanges(svc, family, findings)
	if sp.SourceRanges = ranges; !closed {
		sp.LoadBalancerIPs = balancers
	}
	return sp, true
}

// loadBalancerIPs is the rule of SEMANTICS 2.5 (KEP-1860): ingress IPs whose mode is VIP, which is also what nil means.
// With mode Proxy the load balancer itself reaches the nodes; host names are for clients.
func loadBalancerIPs(svc *corev1.Service, family fwd.Family, findings endpoints.Findings) []netip.Addr {
	var texts []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IPMode == nil || *in.IPMode == corev1.LoadBalancerIPModeVIP {
			texts = append(texts, in.IP)
		}
	}
	return readIPs("status.loadBalancer.ingress[].ip", texts, family, findings)
}

// externalIPs returns those that the cluster's owner allows.
func (cfg *Config) externalIPs(svc *corev1.Service, family fwd.Family, findings endpoints.Findings) []netip.Addr {
	forbidden := endpoints.Finding{
		Reason: ReasonExternalIPForbidden,
		Text:   "spec.externalIPs outside the ranges that the cluster's owner allows (fairlead-controller --allowed-external-ips)",
	}
	return slices.DeleteFunc(readIPs("spec.externalIPs", svc.Spec.ExternalIPs, family, findings), func(ip netip.Addr) bool {
		if slices.ContainsFunc(cfg.AllowedExternalIPs, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return false
		}
		findings.Add(forbidden, "%v", ip)
		return true
	})
}

// readIPs reads a field with addresses of both families and returns the fit ones of one family, sorted, without duplicates.
func readIPs(field string, texts []string, family fwd.Family, findings endpoints.Findings) []netip.Addr {
	var ips []netip.Addr
	for _, text := range texts {
		if strings.TrimSpace(text) == "" {
			continue
		}
		ip, err := endpoints.ParseAddr(strings.TrimSpace(text))
		if err == nil {
			err = fwd.ValidAddr(ip, fwd.FamilyOf(ip))
		}
		if err != nil {
			findings.Add(endpoints.Finding{Reason: ReasonInvalidIP, Text: "virtual IPs left out"}, "%s: %v", field, err)
			continue
		}
		if fwd.FamilyOf(ip) == family {
			ips = append(ips, ip)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(ips)
}

// sourceRanges is the rule of SEMANTICS 2.6: the ranges of the family, sorted; none where one of them is a /0 or all are of
// the other family. closed says that there are ranges that cannot be read and none of the family: then its load-balancer
// IPs are not forwarded at all, since an unreadable filter must not mean no filter.
func sourceRanges(svc *corev1.Service, family fwd.Family, findings endpoints.Findings) (ranges []netip.Prefix, closed bool) {
	invalid := false
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		p, err := endpoints.ParsePrefix(text)
		if err != nil {
			findings.Add(endpoints.Finding{Reason: ReasonInvalidSourceRange, Text: "spec.loadBalancerSourceRanges"}, "%v", err)
			invalid = true
			continue
		}
		if fwd.FamilyOf(p.Addr()) == family {
			ranges = append(ranges, p)
		}
	}
	closed = invalid && len(ranges) == 0
	if slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		ranges = nil
	}
	slices.SortFunc(ranges, netip.Prefix.Compare)
	return slices.Compact(ranges), closed
}

// without returns the addresses that are not among those taken; ips is the caller's own and is reused.
func without(ips []netip.Addr, taken ...netip.Addr) []netip.Addr {
	ips = slices.DeleteFunc(ips, func(ip netip.Addr) bool { return slices.Contains(taken, ip) })
	if len(ips) == 0 {
		return nil
	}
	return ips
}
