package endpoints_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

const one = "10.244.1.5 http=8080/TCP n1/a ready serving"

func TestFromPods(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			{Name: "setup", Ports: []corev1.ContainerPort{{Name: "proxy", ContainerPort: 1, Protocol: corev1.ProtocolTCP}}},
			{Name: "sidecar", RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "proxy", ContainerPort: 15001, Protocol: corev1.ProtocolTCP}}},
		}
	}
	notReady := func(svc *corev1.Service) { svc.Spec.PublishNotReadyAddresses = true }
	for _, c := range []struct {
		name       string
		svc        *corev1.Service
		pod        *corev1.Pod
		want       []string
		incomplete bool
	}{
		{"ready Pod", service(), pod(), []string{one}, false},

		{"1.1 no selector", service(func(s *corev1.Service) { s.Spec.Selector = nil }), pod(), nil, false},
		{"1.1 ExternalName", service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), pod(), nil, false},
		{"1.1 headless has endpoints", service(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), pod(), []string{one}, false},

		{"1.2 failed", service(), pod(phase(corev1.PodFailed)), nil, false},
		{"1.2 succeeded", service(), pod(phase(corev1.PodSucceeded)), nil, false},
		{"1.2 no IP", service(), pod(ips(), on("n9"), func(p *corev1.Pod) { p.Status.PodIP = "" }), nil, false},
		{"1.2 no podIPs", service(), pod(ips()), nil, false},
		{"1.2 pending with IP", service(), pod(phase(corev1.PodPending), unready), []string{"10.244.1.5 http=8080/TCP n1/a"}, false},

		{"1.3 not ready", service(), pod(unready), []string{"10.244.1.5 http=8080/TCP n1/a"}, false},
		{"1.3 no Ready condition", service(), pod(func(p *corev1.Pod) { p.Status.Conditions = nil }), []string{"10.244.1.5 http=8080/TCP n1/a"}, false},
		{"1.3 terminating", service(), pod(terminating), []string{"10.244.1.5 http=8080/TCP n1/a serving terminating"}, false},
		{"1.3 terminating, not serving", service(), pod(terminating, unready), []string{"10.244.1.5 http=8080/TCP n1/a terminating"}, false},
		{"1.3 publishNotReadyAddresses", service(notReady), pod(unready, terminating), []string{"10.244.1.5 http=8080/TCP n1/a ready terminating"}, false},

		{"1.4 unknown node", service(), pod(on("n9")), nil, true},
		{"1.4 no node", service(), pod(on("")), nil, true},
		{"1.4 unknown node, published", service(notReady), pod(on("n9")), []string{"10.244.1.5 http=8080/TCP n9/ ready serving"}, false},
		{"1.4 unknown node of a finished Pod", service(), pod(on("n9"), phase(corev1.PodFailed)), nil, false},

		{"1.5 both families", service(dualStack), pod(ips("10.244.1.5", "fd00::5")), []string{one, "fd00::5 http=8080/TCP n1/a ready serving"}, false},
		{"1.5 one family", service(), pod(ips("fd00::5", "10.244.1.5")), []string{one}, false},
		{"1.5 canonical form", service(dualStack), pod(ips("010.244.001.005", "fd00:0:0::0005")), []string{one, "fd00::5 http=8080/TCP n1/a ready serving"}, false},
		{"1.5 mapped is IPv4", service(), pod(ips("::ffff:10.244.1.5")), []string{one}, false},
		{"1.5 host network", service(), pod(ips("192.0.2.11"), func(p *corev1.Pod) { p.Spec.HostNetwork = true }), []string{"192.0.2.11 http=8080/TCP n1/a ready serving"}, false},
		{"1.5 node without a zone", service(), pod(on("n3")), []string{"10.244.1.5 http=8080/TCP n3/ ready serving"}, false},

		{"1.6 numeric", service(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(9) }), pod(), []string{"10.244.1.5 http=9/TCP n1/a ready serving"}, false},
		{"1.6 named", service(target("http")), pod(), []string{one}, false},
		{"1.6 named, by protocol", service(target("dns"), func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }), pod(), []string{"10.244.1.5 http=5354/UDP n1/a ready serving"}, false},
		{"1.6 sidecar", service(target("proxy")), pod(sidecar), []string{"10.244.1.5 http=15001/TCP n1/a ready serving"}, false},
		{"1.6 containers before sidecars", service(target("proxy")), pod(sidecar, func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Name = "proxy" }), []string{one}, false},

		{"1.7 family from the cluster IP", service(func(s *corev1.Service) { s.Spec.IPFamilies = nil }), pod(ips("10.244.1.5", "fd00::5")), []string{one}, false},
		{"1.7 headless without families", service(func(s *corev1.Service) { s.Spec.IPFamilies, s.Spec.ClusterIP = nil, corev1.ClusterIPNone }), pod(ips("10.244.1.5", "fd00::5")), []string{one, "fd00::5 http=8080/TCP n1/a ready serving"}, false},

		{"1.12 PreferClose", service(distribution("PreferClose")), pod(), []string{one + " hints a/"}, false},
		{"1.12 PreferSameZone", service(distribution("PreferSameZone")), pod(), []string{one + " hints a/"}, false},
		{"1.12 PreferSameNode", service(distribution("PreferSameNode")), pod(), []string{one + " hints a/n1"}, false},
		{"1.12 no zone, no hint", service(distribution("PreferClose")), pod(on("n3")), []string{"10.244.1.5 http=8080/TCP n3/ ready serving"}, false},
		{"1.12 ready ones alone", service(distribution("PreferClose")), pod(terminating), []string{"10.244.1.5 http=8080/TCP n1/a serving terminating"}, false},
		{"1.12 unknown value", service(distribution("Elsewhere")), pod(), []string{one}, false},
		{"1.12 annotation goes first", service(distribution("PreferClose"), func(s *corev1.Service) { s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"} }), pod(), []string{one}, false},
		{"1.12 the older annotation before the newer", service(distribution("PreferClose"), func(s *corev1.Service) {
			s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto", corev1.DeprecatedAnnotationTopologyAwareHints: "Disabled"}
		}), pod(), []string{one + " hints a/"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc, p := c.svc.DeepCopy(), c.pod.DeepCopy()
			got, problems, incomplete := endpoints.FromPods(c.svc, []*corev1.Pod{c.pod}, nodes)
			want(t, got, c.want...)
			if incomplete != c.incomplete {
				t.Errorf("incomplete = %v, want %v", incomplete, c.incomplete)
			}
			if len(problems) > 0 {
				t.Errorf("problems: %v", problems)
			}
			if d := cmp.Diff(svc, c.svc) + cmp.Diff(p, c.pod); d != "" {
				t.Errorf("inputs were changed:\n%s", d)
			}
		})
	}
}

func TestFromPodsResolvesEachPort(t *testing.T) {
	svc := service(func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{
			{Name: "web", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromString("http")},
			{Name: "admin", Protocol: corev1.ProtocolTCP, Port: 81, TargetPort: intstr.FromInt32(9000)},
		}
	})
	other := pod(ips("10.244.2.5"), on("n2"), func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 8081 })
	none := pod(ips("10.244.2.6"), on("n2"), func(p *corev1.Pod) { p.Spec.Containers = nil })
	got, problems, _ := endpoints.FromPods(svc, []*corev1.Pod{none, other, pod()}, nodes)
	want(t, got,
		"10.244.1.5 admin=9000/TCP web=8080/TCP n1/a ready serving",
		"10.244.2.5 admin=9000/TCP web=8081/TCP n2/b ready serving",
		"10.244.2.6 admin=9000/TCP n2/b ready serving")
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
}

func TestFromPodsReports(t *testing.T) {
	for _, c := range []struct {
		name         string
		svc          *corev1.Service
		pod          *corev1.Pod
		reason, part string
	}{
		{"loopback", service(), pod(ips("127.0.0.1")), endpoints.ReasonInvalidAddress, "web-1: address 127.0.0.1: is loopback"},
		{"link-local", service(dualStack), pod(ips("fe80::1")), endpoints.ReasonInvalidAddress, "fe80::1: is link-local"},
		{"multicast", service(), pod(ips("224.0.0.1")), endpoints.ReasonInvalidAddress, "is multicast"},
		{"unspecified", service(), pod(ips("0.0.0.0")), endpoints.ReasonInvalidAddress, "is unspecified"},
		{"no address", service(), pod(ips("cat")), endpoints.ReasonInvalidAddress, `"cat": want an IP address`},
		{"port 0", service(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(0) }), pod(), endpoints.ReasonInvalidPort, "port http: 0"},
		{"port too high", service(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(65536) }), pod(), endpoints.ReasonInvalidPort, "port http: 65536"},
		{"no such name", service(target("htpp")), pod(), endpoints.ReasonNoTargetPort, `port http: "htpp"/TCP`},
		{"no such protocol", service(target("http"), func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolSCTP }), pod(), endpoints.ReasonNoTargetPort, `"http"/SCTP`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, problems, _ := endpoints.FromPods(c.svc, []*corev1.Pod{c.pod}, nodes)
			want(t, got)
			wantProblem(t, problems, c.reason, c.part)
		})
	}
}

func TestSelects(t *testing.T) {
	more := service(func(s *corev1.Service) { s.Spec.Selector["tier"] = "" })
	for _, c := range []struct {
		name string
		svc  *corev1.Service
		pod  *corev1.Pod
		want bool
	}{
		{"match", service(), pod(), true},
		{"more labels", service(), pod(func(p *corev1.Pod) { p.Labels["x"] = "y" }), true},
		{"other value", service(), pod(func(p *corev1.Pod) { p.Labels["app"] = "db" }), false},
		{"absent is not empty", more, pod(), false},
		{"other namespace", service(), pod(func(p *corev1.Pod) { p.Namespace = "other" }), false},
		{"no selector", service(func(s *corev1.Service) { s.Spec.Selector = nil }), pod(), false},
	} {
		if got := endpoints.Selects(c.svc, c.pod); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
