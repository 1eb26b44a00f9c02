package publish

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestPack(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []corev1.EndpointSubset
		want string
	}{
		{"nothing", nil, ""},
		{"sorted", []corev1.EndpointSubset{subset(1, []string{"10.0.0.2", "10.0.0.1"}, nil)}, "p1/1/TCP: 10.0.0.1,10.0.0.2; \n"},
		{"ports with the same addresses share a subset", []corev1.EndpointSubset{subset(2, []string{"a"}, []string{"b"}), subset(1, []string{"a"}, []string{"b"})}, "p1/1/TCP,p2/2/TCP: a; b\n"},
		{"ports with other addresses do not", []corev1.EndpointSubset{subset(2, []string{"a"}, nil), subset(1, []string{"a", "b"}, nil)}, "p1/1/TCP: a,b; \np2/2/TCP: a; \n"},
		{"nor with another readiness", []corev1.EndpointSubset{subset(2, nil, []string{"a"}), subset(1, []string{"a"}, nil)}, "p1/1/TCP: a; \np2/2/TCP: ; a\n"},
		{"parts of one port are joined", []corev1.EndpointSubset{subset(1, []string{"a"}, nil), subset(1, []string{"b"}, nil), subset(1, []string{"a"}, nil)}, "p1/1/TCP: a,b; \n"},
		{"not ready anywhere is not ready", []corev1.EndpointSubset{subset(1, []string{"a"}, nil), subset(1, nil, []string{"a"})}, "p1/1/TCP: ; a\n"},
		{"no ports", []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "a"}}}, {Addresses: []corev1.EndpointAddress{{IP: "b"}}}}, ": a,b; \n"},
		{"no addresses", []corev1.EndpointSubset{subset(1, nil, nil)}, "p1/1/TCP: ; \n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := pack(c.in)
			if diff := cmp.Diff(c.want, text(got)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(got, pack(got)); diff != "" {
				t.Errorf("packed twice:\n%s", diff)
			}
		})
	}
}

func TestPackKeepsPodsWithOneAddressApart(t *testing.T) {
	leaving, coming := corev1.EndpointAddress{IP: "a", TargetRef: &corev1.ObjectReference{UID: "1"}}, corev1.EndpointAddress{IP: "a", TargetRef: &corev1.ObjectReference{UID: "2"}}
	got := pack([]corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{coming}, NotReadyAddresses: []corev1.EndpointAddress{leaving}, Ports: subset(1, nil, nil).Ports}})
	if want := "p1/1/TCP: a; a\n"; text(got) != want {
		t.Errorf("got %q, want %q", text(got), want)
	}
}

// TestSubsets holds the rules of SEMANTICS 1.9 by name.
func TestSubsets(t *testing.T) {
	named := func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("web") }
	withPort := func(number int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: number, Protocol: corev1.ProtocolTCP}}}}
		}
	}
	publishing := func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }
	ipv6 := func(s *corev1.Service) {
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	}
	for _, c := range []struct {
		name string
		svc  *corev1.Service
		pods []*corev1.Pod
		want string
	}{
		{"ready and not", testService("w"), []*corev1.Pod{testPod("w", 1, unready), testPod("w", 0)}, "http/8080/TCP: 10.0.0.1; 10.0.0.2\n"},
		{"terminating Pods do not count", testService("w"), []*corev1.Pod{testPod("w", 0, terminating)}, ""},
		{"unless addresses that are not ready are published", testService("w", publishing), []*corev1.Pod{testPod("w", 0, terminating), testPod("w", 1, unready)}, "http/8080/TCP: 10.0.0.1,10.0.0.2; \n"},
		{"a Pod that is done does not count", testService("w"), []*corev1.Pod{testPod("w", 0, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, ""},
		{"primary family", testService("w", ipv6), []*corev1.Pod{testPod("w", 0)}, "http/8080/TCP: fd00::1; \n"},
		{"a Pod without the family", testService("w", ipv6), []*corev1.Pod{testPod("w", 0, func(p *corev1.Pod) { p.Status.PodIPs = p.Status.PodIPs[:1] })}, ""},
		{"named ports resolve by Pod", testService("w", named), []*corev1.Pod{testPod("w", 0, withPort(1)), testPod("w", 1, withPort(2)), testPod("w", 2)}, "http/1/TCP: 10.0.0.1; \nhttp/2/TCP: 10.0.0.2; \n"},
		{"headless without ports", testService("w", func(s *corev1.Service) { s.Spec.Ports, s.Spec.ClusterIP = nil, corev1.ClusterIPNone }), []*corev1.Pod{testPod("w", 0)}, ": 10.0.0.1; \n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, text(subsetsOf(c.svc, c.pods))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAddressFields(t *testing.T) {
	pod := testPod("w", 0, func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "h", "w" })
	got := subsetsOf(testService("w"), []*corev1.Pod{pod})[0].Addresses[0]
	node := "n1"
	want := corev1.EndpointAddress{IP: "10.0.0.1", NodeName: &node, Hostname: "h", TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "w-0", UID: "uid-w-0"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// addresses makes n addresses that begin with a prefix.
func addresses(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s%05d", prefix, i))
	}
	return out
}

func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		name string
		in   []corev1.EndpointSubset
		// want is the number of ready and not ready addresses of each subset that is left.
		want [][2]int
		cut  bool
	}{
		{"as many as fit", []corev1.EndpointSubset{subset(1, addresses("a", 600), addresses("b", 400))}, [][2]int{{600, 400}}, false},
		{"those not ready go first", []corev1.EndpointSubset{subset(1, addresses("a", 700), addresses("b", 400))}, [][2]int{{700, 300}}, true},
		{"in proportion", []corev1.EndpointSubset{subset(1, addresses("a", 400), addresses("b", 300)), subset(2, addresses("c", 400), addresses("d", 100))}, [][2]int{{400, 150}, {400, 50}}, true},
		{"ready ones in proportion, the others all", []corev1.EndpointSubset{subset(1, addresses("a", 1500), addresses("b", 10)), subset(2, addresses("c", 500), nil)}, [][2]int{{750, 0}, {250, 0}}, true},
		{"rounded up as long as there is room", []corev1.EndpointSubset{subset(1, addresses("a", 999), nil), subset(2, addresses("b", 1), nil), subset(3, addresses("c", 1), nil)}, [][2]int{{999, 0}, {1, 0}}, true},
		{"a subset with none goes", []corev1.EndpointSubset{subset(1, addresses("a", 1001), nil), subset(2, nil, addresses("b", 5))}, [][2]int{{1000, 0}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, cut := truncate(c.in)
			var got [][2]int
			for _, s := range left {
				got = append(got, [2]int{len(s.Addresses), len(s.NotReadyAddresses)})
			}
			if diff := cmp.Diff(c.want, got); diff != "" || cut != c.cut {
				t.Errorf("truncated %t, want %t; (-want +got):\n%s", cut, c.cut, diff)
			}
		})
	}
}

func pods(n int, change ...func(*corev1.Pod)) []*corev1.Pod {
	var out []*corev1.Pod
	for i := range n {
		out = append(out, testPod("w", i, change...))
	}
	return out
}

// TestObjectIsStable: what was written is not written again, whatever the order of the Pods; a truncated one neither.
func TestObjectIsStable(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{0, 1, 50, 1000, 1001, 1500} {
		svc, all := testService("w"), pods(n)
		first := object(svc, all, nil, time.Unix(7, 0))
		if first == nil {
			t.Fatalf("%d Pods: no object", n)
		}
		_, over := first.Annotations[corev1.EndpointsOverCapacity]
		if over != (n > 1000) {
			t.Errorf("%d Pods: over-capacity %t", n, over)
		}
		first.ResourceVersion = "1"
		for range 5 {
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			if again := object(svc, all, first, time.Unix(8, 0)); again != nil {
				t.Errorf("%d Pods: written again, though nothing changed:\n%s", n, cmp.Diff(first, again))
			}
		}
	}
}

func TestObjectMetadata(t *testing.T) {
	svc := testService("w")
	first := object(svc, pods(1), nil, time.Unix(7, 0))
	if diff := cmp.Diff(map[string]string{"team": "a", LabelEndpointsManagedBy: ObjectController}, first.Labels); diff != "" {
		t.Errorf("labels:\n%s", diff)
	}
	if got := first.Annotations[corev1.EndpointsLastChangeTriggerTime]; got != "1970-01-01T00:00:07Z" {
		t.Errorf("trigger time %q", got)
	}
	first.Annotations["mine"] = "stays"
	second := object(svc, pods(2), first, time.Time{})
	if diff := cmp.Diff(map[string]string{"mine": "stays"}, second.Annotations); diff != "" {
		t.Errorf("annotations after a change without a known cause:\n%s", diff)
	}
	svc.Spec.ClusterIP = corev1.ClusterIPNone
	if headless := object(svc, pods(2), second, time.Time{}); headless == nil || headless.Labels[corev1.IsHeadlessService] != "" || len(headless.Labels) != 3 {
		t.Errorf("headless: %v", headless)
	}
	old := second.DeepCopy()
	old.Subsets[0].Addresses[0].TargetRef.ResourceVersion = "99"
	if again := object(testService("w"), pods(2), old, time.Time{}); again != nil {
		t.Errorf("written again because of a Pod's version:\n%s", cmp.Diff(old, again))
	}
}

func TestIsForeign(t *testing.T) {
	elected := testEndpoints("scheduler")
	elected.Annotations = map[string]string{resourcelock.LeaderElectionRecordAnnotationKey: "{}"}
	apiServer := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}}
	if !isForeign(elected) || !isForeign(apiServer) || isForeign(testEndpoints("kubernetes")) {
		t.Error("isForeign is wrong")
	}
}
