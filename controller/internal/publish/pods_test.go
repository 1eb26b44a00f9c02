package publish

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestRefusedAddresses: what the API server would refuse does not take the rest of its object with it.
func TestRefusedAddresses(t *testing.T) {
	at := func(ips ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.PodIP, p.Status.PodIPs = ips[0], nil
			for _, ip := range ips {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
			}
		}
	}
	dual := testService("w", func(s *corev1.Service) { s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol) })
	client := fake.NewClientset(testNode("n1"), dual, testPod("w", 0),
		testPod("w", 1, at("127.0.0.5")), testPod("w", 2, at("169.254.1.1", "fd00::3")), testPod("w", 3, at("10.0.0.4", "fe80::4")))
	named(client)
	l := lead(t, client)
	l.until("slices of what is fine", l.has(SliceController,
		"IPv4 http/8080: 10.0.0.1=true 10.0.0.4=true", "IPv6 http/8080: fd00::1=true fd00::3=true"))
	l.until("an object of what is fine", l.hasObjects("w: http/8080/TCP: 10.0.0.1,10.0.0.4;"))
}
