package kube

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

// newTestObjects returns Objects that read from a fake API server, and start, which begins to watch.
func newTestObjects(t *testing.T, client *fake.Clientset) (*Objects, func()) {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(strip))
	o, err := NewObjects(Informers{
		Services: factory.Core().V1().Services().Informer(), Nodes: factory.Core().V1().Nodes().Informer(),
		Slices: factory.Discovery().V1().EndpointSlices().Informer(), Pods: factory.Core().V1().Pods().Informer(),
		Endpoints: factory.Core().V1().Endpoints().Informer(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return o, func() { factory.Start(t.Context().Done()) }
}

func testService(name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Selector: selector,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP}},
		},
	}
}

func testPod(name, node, ip string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func testNode(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
}

// TestIndexesAgreeWithSelectors compares what the indexes say with a look at every pair of a Service and a Pod.
func TestIndexesAgreeWithSelectors(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	labels := func(most int) map[string]string {
		m := map[string]string{}
		for range rng.IntN(most + 1) {
			m[fmt.Sprintf("k%d", rng.IntN(4))] = []string{"a", "bb", "ccc"}[rng.IntN(3)]
		}
		return m
	}
	o, _ := newTestObjects(t, fake.NewClientset())
	var services []*corev1.Service
	var pods []*corev1.Pod
	for i := range 60 {
		services = append(services, testService(fmt.Sprintf("s%d", i), labels(3)))
		services[i].Namespace = []string{"ns", "other"}[rng.IntN(2)]
		add(t, o.services.GetIndexer(), services[i])
	}
	for i := range 200 {
		pods = append(pods, testPod(fmt.Sprintf("p%d", i), "n1", "10.0.0.1", labels(4)))
		add(t, o.pods.GetIndexer(), pods[i])
	}
	matches := 0
	for _, s := range services {
		var want []string
		for _, p := range pods {
			if endpoints.Selects(s, p) {
				want = append(want, p.Name)
				matches++
			}
		}
		if diff := cmp.Diff(sorted(want), sorted(names(o.Pods(s)))); diff != "" {
			t.Errorf("Pods of %s with selector %v (-want +got):\n%s", s.Name, s.Spec.Selector, diff)
		}
	}
	for _, p := range pods {
		var want, got []string
		for _, s := range services {
			if endpoints.Selects(s, p) {
				want = append(want, s.Name)
			}
		}
		for _, key := range o.ServicesOf(p) {
			got = append(got, key.Name)
		}
		if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
			t.Errorf("Services of %s with labels %v (-want +got):\n%s", p.Name, p.Labels, diff)
		}
	}
	if matches < 100 {
		t.Errorf("only %d pairs match: the test says little", matches)
	}
}

func TestSlicesByService(t *testing.T) {
	o, _ := newTestObjects(t, fake.NewClientset())
	add(t, o.slices.GetIndexer(), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}})
	add(t, o.slices.GetIndexer(), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b"}})
	add(t, o.slices.GetIndexer(), &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "c", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}})
	got := o.Slices(types.NamespacedName{Namespace: "ns", Name: "web"})
	if len(got) != 1 || got[0].Name != "a" {
		t.Errorf("slices of ns/web: %v", got)
	}
}

func add(t *testing.T, store interface{ Add(any) error }, obj any) {
	t.Helper()
	if err := store.Add(obj); err != nil {
		t.Fatal(err)
	}
}

func names(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
