package publish

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// pods are those that a Service selects, without addresses that the API server refuses in endpoints: one of them would keep
// all the others of its object from being published, upstream's controllers included. The tables leave the same ones out, and
// say so by an Event. Pods whose addresses are all fine are the cache's own, and must not be written to.
func (t *term) pods(svc *corev1.Service) []*corev1.Pod {
	all := t.cfg.Reader.Pods(svc)
	if !slices.ContainsFunc(all, hasRefused) {
		return all
	}
	kept := make([]*corev1.Pod, 0, len(all))
	for _, p := range all {
		if hasRefused(p) {
			p = withoutRefused(p)
		}
		kept = append(kept, p)
	}
	return kept
}

func hasRefused(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return refused(ip.IP) })
}

// withoutRefused returns a copy. Without any address left, the Pod is none of an endpoint.
func withoutRefused(p *corev1.Pod) *corev1.Pod {
	kept := p.DeepCopy()
	kept.Status.PodIPs = slices.DeleteFunc(kept.Status.PodIPs, func(ip corev1.PodIP) bool { return refused(ip.IP) })
	kept.Status.PodIP = ""
	if len(kept.Status.PodIPs) > 0 {
		kept.Status.PodIP = kept.Status.PodIPs[0].IP
	}
	return kept
}

// refused reports an address that may not be an endpoint. What is no address at all is left to the library.
func refused(text string) bool {
	addr, err := endpoints.ParseAddr(text)
	return err == nil && fwd.ValidAddr(addr, fwd.FamilyOf(addr)) != nil
}
