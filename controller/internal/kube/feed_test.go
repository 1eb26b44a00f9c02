package kube

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/controller/internal/fakeapi"
)

const patience = 20 * time.Second

// sink is what a Feed has said so far. Its state is handed over with each Commit.
type sink struct {
	services map[string][]string
	nodes    map[string]string
	commits  chan state
}

type state struct {
	Services map[string][]string
	Nodes    map[string]string
	Round    Round
}

func newSink() *sink {
	return &sink{services: map[string][]string{}, nodes: map[string]string{}, commits: make(chan state, 10000)}
}

func (s *sink) SetService(svc *corev1.Service, eps []endpoints.Endpoint) {
	s.services[svc.Name] = describe(eps)
}
func (s *sink) DeleteService(_, name string) { delete(s.services, name) }
func (s *sink) SetNode(n *corev1.Node)       { s.nodes[n.Name] = zoneOf(n) }
func (s *sink) DeleteNode(name string)       { delete(s.nodes, name) }
func (s *sink) Commit(_ context.Context, r Round) {
	s.commits <- state{maps.Clone(s.services), maps.Clone(s.nodes), r}
}

func describe(eps []endpoints.Endpoint) []string {
	out := []string{}
	for _, e := range eps {
		out = append(out, fmt.Sprintf("%v zone=%s ready=%t hints=%v", e.Addr, e.Zone, e.Ready, e.HintZones))
	}
	slices.Sort(out)
	return out
}

type feedTest struct {
	*testing.T
	client *fake.Clientset
	sink   *sink
	feed   *Feed
	last   state
}

func startFeed(t *testing.T, client *fake.Clientset) *feedTest {
	t.Helper()
	objects, start := newTestObjects(t, client)
	f := &feedTest{T: t, client: client, sink: newSink()}
	f.feed = NewFeed(FeedConfig{Objects: objects, Sink: f.sink, Derived: []string{"ours"}, OutageShare: 0.5, OutageDoubt: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- f.feed.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	watched := fakeapi.Watched(client)
	start()
	f.next()
	<-f.feed.Synced()
	<-watched
	return f
}

// next waits for a Commit.
func (f *feedTest) next() state {
	f.Helper()
	select {
	case f.last = <-f.sink.commits:
	case <-time.After(patience):
		f.Fatal("no Commit")
	}
	return f.last
}

// until waits for the state that a condition describes.
func (f *feedTest) until(what string, ok func(state) bool) {
	f.Helper()
	deadline := time.After(patience)
	for !ok(f.last) {
		select {
		case f.last = <-f.sink.commits:
		case <-deadline:
			f.Fatalf("%s: never; last state: %v", what, f.last)
		}
	}
}

func (f *feedTest) must(_ any, err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// TestFirstCommitHoldsEverything: synced means drained.
func TestFirstCommitHoldsEverything(t *testing.T) {
	client := fake.NewClientset(testNode("n1", "a"))
	for i := range 200 {
		label := map[string]string{"app": fmt.Sprint(i)}
		if err := client.Tracker().Add(testService(fmt.Sprintf("s%d", i), label)); err != nil {
			t.Fatal(err)
		}
		if err := client.Tracker().Add(testPod(fmt.Sprintf("p%d", i), "n1", "10.0.0.1", label)); err != nil {
			t.Fatal(err)
		}
	}
	f := startFeed(t, client)
	if len(f.last.Services) != 200 || len(f.last.Nodes) != 1 {
		t.Fatalf("first Commit has %d Services and %d Nodes, want 200 and 1", len(f.last.Services), len(f.last.Nodes))
	}
	for name, eps := range f.last.Services {
		if len(eps) != 1 {
			t.Errorf("first Commit: Service %s has endpoints %v, want one", name, eps)
		}
	}
	if !slices.IsSortedFunc(f.last.Round.Services, compareKeys) || f.last.Round.Cause.IsZero() {
		t.Errorf("round: cause %v, services sorted: %t", f.last.Round.Cause, slices.IsSortedFunc(f.last.Round.Services, compareKeys))
	}
}

func TestEmptyClusterIsCommitted(t *testing.T) {
	f := startFeed(t, fake.NewClientset())
	if len(f.last.Services)+len(f.last.Nodes) != 0 {
		t.Errorf("first Commit: %v", f.last)
	}
}

func TestFeedFollowsChanges(t *testing.T) {
	label := map[string]string{"app": "web"}
	f := startFeed(t, fake.NewClientset(testService("web", label), testPod("p1", "n1", "10.0.0.1", label)))
	ctx := t.Context()
	core := f.client.CoreV1()
	has := func(want ...string) func(state) bool {
		return func(s state) bool { return slices.Equal(s.Services["web"], want) }
	}
	f.until("a Pod on an unknown Node does not count", has())
	f.must(core.Nodes().Create(ctx, testNode("n1", "a"), metav1.CreateOptions{}))
	f.until("the Node comes", has("10.0.0.1 zone=a ready=true hints=[]"))
	f.must(core.Nodes().Update(ctx, testNode("n1", "b"), metav1.UpdateOptions{}))
	f.until("the Node's zone changes", has("10.0.0.1 zone=b ready=true hints=[]"))

	unready := testPod("p1", "n1", "10.0.0.1", label)
	unready.Status.Conditions[0].Status = corev1.ConditionFalse
	f.must(core.Pods("ns").Update(ctx, unready, metav1.UpdateOptions{}))
	f.until("the Pod is not ready", has("10.0.0.1 zone=b ready=false hints=[]"))
	f.must(core.Pods("ns").Update(ctx, testPod("p1", "n1", "10.0.0.1", map[string]string{"app": "db"}), metav1.UpdateOptions{}))
	f.until("the Pod's labels leave the selector", has())
	f.must(core.Services("ns").Update(ctx, testService("web", map[string]string{"app": "db"}), metav1.UpdateOptions{}))
	f.until("the selector follows", has("10.0.0.1 zone=b ready=true hints=[]"))

	foreign := testSlice("by-hand", "web", "somebody", "10.0.0.7")
	f.must(f.client.DiscoveryV1().EndpointSlices("ns").Create(ctx, foreign, metav1.CreateOptions{}))
	f.until("a foreign slice counts", has("10.0.0.1 zone=b ready=true hints=[]", "10.0.0.7 zone= ready=true hints=[]"))
	f.must(nil, f.client.DiscoveryV1().EndpointSlices("ns").Delete(ctx, "by-hand", metav1.DeleteOptions{}))
	f.until("the foreign slice goes", has("10.0.0.1 zone=b ready=true hints=[]"))
	f.must(f.client.DiscoveryV1().EndpointSlices("ns").Create(ctx, testSlice("derived", "web", "ours", "10.0.0.8"), metav1.CreateOptions{}))

	f.must(nil, core.Pods("ns").Delete(ctx, "p1", metav1.DeleteOptions{}))
	f.until("the Pod goes, and derived slices do not count", has())
	f.must(nil, core.Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}))
	f.until("the Node goes", func(s state) bool { return len(s.Nodes) == 0 })
	f.must(nil, core.Services("ns").Delete(ctx, "web", metav1.DeleteOptions{}))
	f.until("the Service goes", func(s state) bool { _, ok := s.Services["web"]; return !ok })
}

// TestHintsOfModeAuto: those come from the slices that were published.
func TestHintsOfModeAuto(t *testing.T) {
	label := map[string]string{"app": "web"}
	svc := testService("web", label)
	svc.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
	f := startFeed(t, fake.NewClientset(svc, testNode("n1", "a"), testPod("p1", "n1", "10.0.0.1", label)))
	slice := testSlice("derived", "web", "ours", "10.0.0.1")
	slice.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}}
	f.must(f.client.DiscoveryV1().EndpointSlices("ns").Create(t.Context(), slice, metav1.CreateOptions{}))
	f.until("hints arrive", func(s state) bool {
		return slices.Equal(s.Services["web"], []string{"10.0.0.1 zone=a ready=true hints=[z]"})
	})
}

// TestSilentUpdates: what changes no endpoint makes no round.
func TestSilentUpdates(t *testing.T) {
	label := map[string]string{"app": "web"}
	f := startFeed(t, fake.NewClientset(testService("web", label), testNode("n1", "a"), testPod("p1", "n1", "10.0.0.1", label)))
	ctx := t.Context()
	restarted := testPod("p1", "n1", "10.0.0.1", label)
	restarted.Annotations = map[string]string{"restarted": "yes"}
	restarted.ResourceVersion = "7"
	f.must(f.client.CoreV1().Pods("ns").Update(ctx, restarted, metav1.UpdateOptions{}))
	beat := testNode("n1", "a")
	beat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, LastHeartbeatTime: metav1.Now()}}
	f.must(f.client.CoreV1().Nodes().Update(ctx, beat, metav1.UpdateOptions{}))
	f.must(f.client.DiscoveryV1().EndpointSlices("ns").Create(ctx, testSlice("d", "web", "ours", "10.0.0.1"), metav1.CreateOptions{}))
	f.must(f.client.CoreV1().Services("ns").Create(ctx, testService("marker", nil), metav1.CreateOptions{}))
	for _, ok := f.last.Services["marker"]; !ok; _, ok = f.last.Services["marker"] {
		f.next()
		for _, key := range f.last.Round.Services {
			if key.Name != "marker" {
				t.Errorf("looked at %s for nothing", key)
			}
		}
		if len(f.last.Round.Nodes) > 0 {
			t.Errorf("looked at Nodes %v for nothing", f.last.Round.Nodes)
		}
	}
}

// TestRandomHistoryEndsRight compares the end of a random history with what a fresh computation gives.
func TestRandomHistoryEndsRight(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	f := startFeed(t, fake.NewClientset())
	ctx := t.Context()
	core := f.client.CoreV1()
	labels := func() map[string]string { return map[string]string{"app": fmt.Sprint(rng.IntN(3))} }
	for range 400 {
		name, n := fmt.Sprintf("o%d", rng.IntN(6)), rng.IntN(4)
		pod := testPod(name, "n"+fmt.Sprint(rng.IntN(3)), fmt.Sprintf("10.0.0.%d", 1+rng.IntN(9)), labels())
		switch n {
		case 0:
			_ = core.Services("ns").Delete(ctx, name, metav1.DeleteOptions{})
			_, _ = core.Services("ns").Create(ctx, testService(name, labels()), metav1.CreateOptions{})
		case 1:
			_ = core.Pods("ns").Delete(ctx, name, metav1.DeleteOptions{})
		case 2:
			if _, err := core.Pods("ns").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				_, _ = core.Pods("ns").Update(ctx, pod, metav1.UpdateOptions{})
			}
		default:
			node := testNode("n"+fmt.Sprint(rng.IntN(3)), fmt.Sprint(rng.IntN(2)))
			_ = core.Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{})
			if rng.IntN(4) > 0 {
				_, _ = core.Nodes().Create(ctx, node, metav1.CreateOptions{})
			}
		}
	}
	want := f.fresh()
	f.until("the end of the history", func(s state) bool { return cmp.Equal(want, s.Services) })
}

// fresh computes the endpoints of all Services from what the API server holds now.
func (f *feedTest) fresh() map[string][]string {
	f.Helper()
	ctx, zones := f.Context(), endpoints.Zones{}
	nodes, err := f.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	f.must(nil, err)
	for i := range nodes.Items {
		zones[nodes.Items[i].Name] = zoneOf(&nodes.Items[i])
	}
	pods, err := f.client.CoreV1().Pods("ns").List(ctx, metav1.ListOptions{})
	f.must(nil, err)
	services, err := f.client.CoreV1().Services("ns").List(ctx, metav1.ListOptions{})
	f.must(nil, err)
	want := map[string][]string{}
	for i := range services.Items {
		svc := &services.Items[i]
		var selected []*corev1.Pod
		for j := range pods.Items {
			if endpoints.Selects(svc, &pods.Items[j]) {
				selected = append(selected, &pods.Items[j])
			}
		}
		eps, _, _ := endpoints.FromPods(svc, selected, zones)
		want[svc.Name] = describe(eps)
	}
	return want
}

func testSlice(name, service, author, ip string) *discoveryv1.EndpointSlice {
	port, protocol := int32(8080), corev1.ProtocolTCP
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: author,
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{ip}}},
	}
}
