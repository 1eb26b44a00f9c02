package publish

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// aSubset has one address.
func aSubset() corev1.EndpointSubset {
	return corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}, Ports: []corev1.EndpointPort{{Name: "http", Port: 80, Protocol: "TCP"}}}
}

// TestObjectsBeforeTheirService: Endpoints that somebody writes before the Service stay, whatever else has that name; those
// of a Service without a selector go with it.
func TestObjectsBeforeTheirService(t *testing.T) {
	client := fake.NewClientset(testNode("n1"), testService("w"))
	named(client)
	l := lead(t, client)
	ctx := t.Context()
	l.until("the controller writes", l.hasObjects("w:"))
	_, err := client.CoreV1().Endpoints("ns").Create(ctx, testEndpoints("early", aSubset()), metav1.CreateOptions{})
	l.check(err)
	// A slice by another author marks the name, as if its Service had changed.
	l.publisher.Changed([]types.NamespacedName{{Namespace: "ns", Name: "early"}})
	_, err = client.CoreV1().Services("ns").Create(ctx, testService("marker"), metav1.CreateOptions{})
	l.check(err)
	const early = "early: http/80/TCP: 192.0.2.1;"
	l.until("the marker is published, the object stays", l.hasObjects(early, "marker:", "w:"))

	bare := testService("early", func(s *corev1.Service) { s.Spec.Selector = nil })
	_, err = client.CoreV1().Services("ns").Create(ctx, bare, metav1.CreateOptions{})
	l.check(err)
	l.until("the object is mirrored", l.has(MirrorController, "IPv4 http/80: 192.0.2.1=true"))
	l.check(client.CoreV1().Services("ns").Delete(ctx, "early", metav1.DeleteOptions{}))
	l.until("the object goes with its Service", l.hasObjects("marker:", "w:"))
}

// TestServiceWithTheNameOfARecord: a leader election record is neither deleted nor mirrored, but a Service with a selector
// has its endpoints all the same.
func TestServiceWithTheNameOfARecord(t *testing.T) {
	record := func(name string) *corev1.Endpoints {
		e := testEndpoints(name, aSubset())
		e.Annotations = map[string]string{resourcelock.LeaderElectionRecordAnnotationKey: "{}"}
		return e
	}
	client := fake.NewClientset(testNode("n1"), testService("w"), testPod("w", 0), record("w"), record("alone"))
	named(client)
	l := lead(t, client)
	l.until("the Service has its endpoints", l.hasObjects("alone: http/80/TCP: 192.0.2.1;", "w: http/8080/TCP: 10.0.0.1;"))
	l.check(client.CoreV1().Services("ns").Delete(t.Context(), "w", metav1.DeleteOptions{}))
	l.until("what was the Service's goes with it", l.hasObjects("alone: http/80/TCP: 192.0.2.1;"))
	if got := l.slices(MirrorController); len(got) > 0 {
		t.Errorf("mirrored: %v", got)
	}
}

// TestDeletedSliceOfAnEarlierTermComesBack though this term never had to write it.
func TestDeletedSliceOfAnEarlierTermComesBack(t *testing.T) {
	client := fake.NewClientset(testNode("n1"), testService("w"), testPod("w", 0))
	named(client)
	first := lead(t, client)
	want := first.has(SliceController, "IPv4 http/8080: 10.0.0.1=true")
	first.until("slice", want)
	first.until("object", first.hasObjects("w: http/8080/TCP: 10.0.0.1;"))
	first.stop()
	second := lead(t, client)
	_, err := client.CoreV1().Services("ns").Create(t.Context(), testService("marker"), metav1.CreateOptions{})
	second.check(err)
	second.until("the second leader writes", func() bool { return len(second.objects()) == 2 && len(second.slices(SliceController)) == 2 })
	list, err := client.DiscoveryV1().EndpointSlices("ns").List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=w"})
	second.check(err)
	second.check(client.DiscoveryV1().EndpointSlices("ns").Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{}))
	second.until("the slice comes back", second.has(SliceController, "IPv4 : ", "IPv4 http/8080: 10.0.0.1=true"))
}
