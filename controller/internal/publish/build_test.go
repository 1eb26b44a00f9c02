package publish

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func testService(name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"team": "a"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.9", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

// testPod has addresses of both families that end in n.
func testPod(app string, n int, change ...func(*corev1.Pod)) *corev1.Pod {
	v4, v6 := fmt.Sprintf("10.0.%d.%d", n/250, n%250+1), fmt.Sprintf("fd00::%x", n+1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("%s-%d", app, n), UID: types.UID(fmt.Sprintf("uid-%s-%d", app, n)), Labels: map[string]string{"app": app},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: v4, PodIPs: []corev1.PodIP{{IP: v4}, {IP: v6}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func terminating(p *corev1.Pod) {
	now := metav1.Unix(1, 0)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, new(int64)
}

func testNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "a"}}}
}

func testEndpoints(name string, subsets ...corev1.EndpointSubset) *corev1.Endpoints {
	return &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("eps-" + name)}, Subsets: subsets}
}

func subset(port int32, ready, notReady []string) corev1.EndpointSubset {
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: fmt.Sprint("p", port), Port: port, Protocol: corev1.ProtocolTCP}}}
	for _, ip := range ready {
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
	}
	for _, ip := range notReady {
		s.NotReadyAddresses = append(s.NotReadyAddresses, corev1.EndpointAddress{IP: ip})
	}
	return s
}

// testSlice is owned by the Service of the test, as controllers make them.
func testSlice(name, service, author string, ips ...string) *discoveryv1.EndpointSlice {
	portName, port, protocol := "http", int32(8080), corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Generation: 1,
			Labels:          map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: author, "team": "a"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(testService(service), corev1.SchemeGroupVersion.WithKind("Service"))},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s
}

// text prints subsets in one line each: ports, ready addresses, addresses that are not.
func text(subsets []corev1.EndpointSubset) string {
	var b strings.Builder
	for _, s := range subsets {
		var ports, ready, notReady []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s/%d/%s", p.Name, p.Port, p.Protocol))
		}
		for _, a := range s.Addresses {
			ready = append(ready, a.IP)
		}
		for _, a := range s.NotReadyAddresses {
			notReady = append(notReady, a.IP)
		}
		fmt.Fprintf(&b, "%s: %s; %s\n", strings.Join(ports, ","), strings.Join(ready, ","), strings.Join(notReady, ","))
	}
	return b.String()
}
