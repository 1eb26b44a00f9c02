package endpoints_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

var nodes = endpoints.Zones{"n1": "a", "n2": "b", "n3": ""}

func service(change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Selector:   map[string]string{"app": "web"},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	for _, f := range change {
		f(svc)
	}
	return svc
}

func dualStack(svc *corev1.Service) {
	svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
}

func target(name string) func(*corev1.Service) {
	return func(svc *corev1.Service) { svc.Spec.Ports[0].TargetPort = intstr.FromString(name) }
}

func distribution(d string) func(*corev1.Service) {
	return func(svc *corev1.Service) { svc.Spec.TrafficDistribution = &d }
}

// pod is ready, on node n1, with the address 10.244.1.5.
func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "web-1-uid", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "web", Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP},
			{Name: "dns", ContainerPort: 5353, Protocol: corev1.ProtocolTCP},
			{Name: "dns", ContainerPort: 5354, Protocol: corev1.ProtocolUDP},
		}}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.244.1.5", PodIPs: []corev1.PodIP{{IP: "10.244.1.5"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func ips(ips ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.PodIPs = nil
		for _, ip := range ips {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		}
	}
}

func on(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

// text writes endpoints as one line each: address, ports, place, conditions, hints.
func text(eps []endpoints.Endpoint) string {
	var b strings.Builder
	for _, e := range eps {
		b.WriteString(e.Addr.String())
		for _, p := range e.Ports {
			fmt.Fprintf(&b, " %s=%d/%v", p.Name, p.Port, p.Protocol)
		}
		b.WriteString(" " + e.Node + "/" + e.Zone)
		for _, c := range []struct {
			is   bool
			name string
		}{{e.Ready, "ready"}, {e.Serving, "serving"}, {e.Terminating, "terminating"}} {
			if c.is {
				b.WriteString(" " + c.name)
			}
		}
		if len(e.HintZones)+len(e.HintNodes) > 0 {
			b.WriteString(" hints " + strings.Join(e.HintZones, ",") + "/" + strings.Join(e.HintNodes, ","))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func want(t *testing.T, got []endpoints.Endpoint, lines ...string) {
	t.Helper()
	if d := cmp.Diff(strings.Join(append(lines, ""), "\n"), text(got)); d != "" {
		t.Errorf("endpoints (-want +got):\n%s", d)
	}
	if !slices.IsSortedFunc(got, endpoints.Compare) {
		t.Error("endpoints are not sorted")
	}
}

func wantProblem(t *testing.T, problems []endpoints.Problem, reason, part string) {
	t.Helper()
	for _, p := range problems {
		if p.Reason == reason && strings.Contains(p.Message, part) && !strings.Contains(p.Message, "\n") {
			return
		}
	}
	t.Errorf("no problem %s with %q among %v", reason, part, problems)
}

func slice(name string, family discoveryv1.AddressType, eps ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	port, number, protocol := "http", int32(8080), corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: &protocol}},
		Endpoints:   eps,
	}
}

func endpoint(addresses ...string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: addresses}
}
