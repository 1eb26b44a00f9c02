package publish

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fairlead/fairlead/controller/internal/fakeapi"
	"github.com/fairlead/fairlead/controller/internal/kube"
)

const (
	patience = 20 * time.Second
	often    = 5 * time.Millisecond
)

// leader is a Publisher that leads, on a fake API server.
type leader struct {
	*testing.T
	client    *fake.Clientset
	publisher *Publisher
	stop      func()
	writes    atomic.Int64
}

// named gives names to what is created by a prefix, as the API server does.
func named(client *fake.Clientset) {
	var n atomic.Int64
	client.PrependReactor("create", "endpointslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
		s := action.(clienttesting.CreateAction).GetObject().(*discoveryv1.EndpointSlice)
		if s.Name == "" {
			s.Name = fmt.Sprint(s.GenerateName, n.Add(1))
			s.UID = types.UID("uid-" + s.Name)
		}
		return false, nil, nil
	})
}

// lead starts to lead; the returned leader ends with the test.
func lead(t *testing.T, client *fake.Clientset) *leader {
	t.Helper()
	l := &leader{T: t, client: client}
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(client, 0)
	objects, err := kube.NewObjects(kube.Informers{
		Services: factory.Core().V1().Services().Informer(), Nodes: factory.Core().V1().Nodes().Informer(),
		Slices: factory.Discovery().V1().EndpointSlices().Informer(), Pods: factory.Core().V1().Pods().Informer(),
		Endpoints: factory.Core().V1().Endpoints().Informer(),
	})
	if err != nil {
		t.Fatal(err)
	}
	events, err := NewEvents(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	l.publisher, err = New(Config{
		Reader: objects, Client: client, Events: events, MaxEndpointsPerSlice: 100, Workers: 4,
		Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if slices.Contains([]string{"create", "update", "delete"}, action.GetVerb()) && action.GetResource().Resource != "events" {
			l.writes.Add(1)
		}
		return false, nil, nil
	})
	feed := kube.NewFeed(kube.FeedConfig{Objects: objects, Sink: &changes{publisher: l.publisher}, Derived: Derived(), Logger: slog.New(slog.DiscardHandler)})
	ended := make(chan error, 2)
	go func() { ended <- feed.Run(ctx) }()
	watched := fakeapi.Watched(client)
	factory.Start(ctx.Done())
	<-feed.Synced()
	<-watched
	go func() { ended <- l.publisher.Lead(ctx, l.publisher.cfg.Reader) }()
	l.stop = func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		ended <- nil
		ended <- nil
	}
	t.Cleanup(l.stop)
	return l
}

// until waits for what is published.
func (l *leader) until(what string, ok func() bool) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(often)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			l.Fatalf("%s: never. Slices: %v; Endpoints: %v", what, l.slices(""), l.objects())
		}
	}
}

func (l *leader) slices(author string) []string {
	list, err := l.client.DiscoveryV1().EndpointSlices("ns").List(context.Background(), metav1.ListOptions{})
	l.check(err)
	var out []string
	for i := range list.Items {
		if s := &list.Items[i]; author == "" || s.Labels[discoveryv1.LabelManagedBy] == author {
			out = append(out, sliceText(s))
		}
	}
	slices.Sort(out)
	return out
}

func (l *leader) objects() []string {
	list, err := l.client.CoreV1().Endpoints("").List(context.Background(), metav1.ListOptions{})
	l.check(err)
	var out []string
	for i := range list.Items {
		out = append(out, strings.TrimSpace(list.Items[i].Name+": "+text(list.Items[i].Subsets)))
	}
	slices.Sort(out)
	return out
}

func (l *leader) check(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *leader) has(author string, want ...string) func() bool {
	return func() bool { return slices.Equal(l.slices(author), want) }
}

func (l *leader) hasObjects(want ...string) func() bool {
	return func() bool { return slices.Equal(l.objects(), want) }
}

func TestPublishFollowsAService(t *testing.T) {
	client := fake.NewClientset(testNode("n1"), testService("w"), testPod("w", 0))
	named(client)
	l := lead(t, client)
	core, ctx := client.CoreV1(), t.Context()
	l.until("slices", l.has(SliceController, "IPv4 http/8080: 10.0.0.1=true"))
	l.until("object", l.hasObjects("w: http/8080/TCP: 10.0.0.1;"))

	_, err := core.Pods("ns").Create(ctx, testPod("w", 1, unready), metav1.CreateOptions{})
	l.check(err)
	l.until("a Pod more", l.has(SliceController, "IPv4 http/8080: 10.0.0.1=true 10.0.0.2=false"))
	l.until("a Pod more", l.hasObjects("w: http/8080/TCP: 10.0.0.1; 10.0.0.2"))

	dual := testService("w", func(s *corev1.Service) { s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPv6Protocol) })
	_, err = core.Services("ns").Update(ctx, dual, metav1.UpdateOptions{})
	l.check(err)
	l.until("a family more", l.has(SliceController, "IPv4 http/8080: 10.0.0.1=true 10.0.0.2=false", "IPv6 http/8080: fd00::1=true fd00::2=false"))
	_, err = core.Services("ns").Update(ctx, testService("w"), metav1.UpdateOptions{})
	l.check(err)
	l.until("a family less", l.has(SliceController, "IPv4 http/8080: 10.0.0.1=true 10.0.0.2=false"))

	l.check(core.Endpoints("ns").Delete(ctx, "w", metav1.DeleteOptions{}))
	l.until("a deleted object comes back", l.hasObjects("w: http/8080/TCP: 10.0.0.1; 10.0.0.2"))
	for i := range 2 {
		l.check(core.Pods("ns").Delete(ctx, fmt.Sprint("w-", i), metav1.DeleteOptions{}))
	}
	l.until("an empty slice stays", l.has(SliceController, "IPv4 : "))
	l.until("an empty object stays", l.hasObjects("w:"))
	l.check(core.Services("ns").Delete(ctx, "w", metav1.DeleteOptions{}))
	l.until("the object goes with the Service", l.hasObjects())
}

// TestNothingIsWrittenTwice: a new leader finds everything as it should be.
func TestNothingIsWrittenTwice(t *testing.T) {
	client := fake.NewClientset(testNode("n1"))
	named(client)
	for i := range 20 {
		l := &leader{T: t}
		name := fmt.Sprint("w", i)
		l.check(client.Tracker().Add(testService(name)))
		l.check(client.Tracker().Add(testPod(name, i)))
	}
	first := lead(t, client)
	first.until("20 slices and objects", func() bool { return len(first.slices(SliceController)) == 20 && len(first.objects()) == 20 })
	first.stop()
	second := lead(t, client)
	marker := testService("marker", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "w0"} })
	_, err := client.CoreV1().Services("ns").Create(t.Context(), marker, metav1.CreateOptions{})
	second.check(err)
	second.until("the marker is published", func() bool { return len(second.slices(SliceController)) == 21 && len(second.objects()) == 21 })
	if n := second.writes.Load(); n != 3 {
		t.Errorf("%d writes, want 3: a marker Service, its slice and its object", n)
	}
}

func TestSweep(t *testing.T) {
	elected := testEndpoints("old-lock", subset(1, []string{"10.0.0.1"}, nil))
	elected.Annotations = map[string]string{"control-plane.alpha.kubernetes.io/leader": "{}"}
	kubernetes := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}}
	client := fake.NewClientset(testEndpoints("orphan", subset(1, []string{"10.0.0.1"}, nil)), elected, kubernetes)
	l := lead(t, client)
	l.until("the orphan goes", l.hasObjects("kubernetes:", "old-lock: p1/1/TCP: 10.0.0.1;"))

	_, err := client.CoreV1().Endpoints("ns").Create(t.Context(), testEndpoints("early", subset(1, []string{"10.0.0.1"}, nil)), metav1.CreateOptions{})
	l.check(err)
	_, err = client.CoreV1().Services("ns").Create(t.Context(), testService("early", func(s *corev1.Service) { s.Spec.Selector = nil }), metav1.CreateOptions{})
	l.check(err)
	l.until("one that comes before its Service stays and is mirrored", l.has(MirrorController, "IPv4 p1/1: 10.0.0.1=true"))
}

func TestMirroring(t *testing.T) {
	client := fake.NewClientset(testService("w", func(s *corev1.Service) { s.Spec.Selector = nil }))
	named(client)
	l := lead(t, client)
	core, ctx := client.CoreV1(), t.Context()
	e := testEndpoints("w", subset(1, []string{"10.0.0.1"}, nil))
	_, err := core.Endpoints("ns").Create(ctx, e, metav1.CreateOptions{})
	l.check(err)
	l.until("mirrored", l.has(MirrorController, "IPv4 p1/1: 10.0.0.1=true"))
	e.Subsets = []corev1.EndpointSubset{subset(2, nil, []string{"10.0.0.1"})}
	_, err = core.Endpoints("ns").Update(ctx, e, metav1.UpdateOptions{})
	l.check(err)
	l.until("changed", l.has(MirrorController, "IPv4 p2/2: 10.0.0.1=false"))
	e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
	_, err = core.Endpoints("ns").Update(ctx, e, metav1.UpdateOptions{})
	l.check(err)
	l.until("skipped", l.has(""))
	e.Labels = nil
	_, err = core.Endpoints("ns").Update(ctx, e, metav1.UpdateOptions{})
	l.check(err)
	l.until("mirrored again", l.has(MirrorController, "IPv4 p2/2: 10.0.0.1=false"))
	_, err = core.Services("ns").Update(ctx, testService("w"), metav1.UpdateOptions{})
	l.check(err)
	l.until("with a selector it is no mirror", l.has(MirrorController))
	l.until("but the Service's own", l.has(SliceController, "IPv4 : "))
}

// TestTakeOver: slices that another controller left become ours in place.
func TestTakeOver(t *testing.T) {
	client := fake.NewClientset(testNode("n1"), testService("w"), testPod("w", 0), testPod("w", 1),
		testSlice("left", "w", upstreamSliceController, "10.0.0.1", "10.0.0.9"))
	named(client)
	var deleted atomic.Bool
	client.PrependReactor("delete", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		deleted.Store(true)
		return false, nil, nil
	})
	l := lead(t, client)
	l.until("taken over and corrected", l.has("", "IPv4 http/8080: 10.0.0.1=true 10.0.0.2=true"))
	s, err := client.DiscoveryV1().EndpointSlices("ns").Get(t.Context(), "left", metav1.GetOptions{})
	l.check(err)
	if s.Labels[discoveryv1.LabelManagedBy] != SliceController || deleted.Load() {
		t.Errorf("slice %v, deleted something: %t", s.Labels, deleted.Load())
	}
	if n := testutil.ToFloat64(l.publisher.metrics.foreign); n != 0 {
		t.Errorf("%v writes of another controller counted for what was left behind", n)
	}
}

// TestSecondController: against one that keeps writing, ours gives way and removes what is its own.
func TestSecondController(t *testing.T) {
	client := fake.NewClientset(testNode("n1"), testService("w"), testPod("w", 0))
	named(client)
	l := lead(t, client)
	l.until("ours", l.has(SliceController, "IPv4 http/8080: 10.0.0.1=true"))
	for i := range maxTakeovers + 1 {
		other := testSlice(fmt.Sprint("theirs", i), "w", upstreamSliceController, "10.0.0.1")
		_, err := client.DiscoveryV1().EndpointSlices("ns").Create(t.Context(), other, metav1.CreateOptions{})
		l.check(err)
		if i < maxTakeovers {
			l.until("taken over", func() bool { return len(l.slices(upstreamSliceController)) == 0 })
		}
	}
	l.until("given up", func() bool { return len(l.slices(SliceController)) == 0 })
	l.until("and said so", func() bool { return testutil.ToFloat64(l.publisher.metrics.contested) == 1 })
	if n := testutil.ToFloat64(l.publisher.metrics.foreign); n != maxTakeovers+1 {
		t.Errorf("%v writes of another controller counted, want %d", n, maxTakeovers+1)
	}
	l.until("theirs stays", l.has("", "IPv4 http/8080: 10.0.0.1=true"))
	_, err := client.CoreV1().Pods("ns").Create(t.Context(), testPod("w", 1), metav1.CreateOptions{})
	l.check(err)
	_, err = client.CoreV1().Services("ns").Create(t.Context(), testService("x"), metav1.CreateOptions{})
	l.check(err)
	l.until("other Services are published on", l.has(SliceController, "IPv4 : "))
}

// TestTerminatingNamespace: refused creations are not tried again.
func TestTerminatingNamespace(t *testing.T) {
	client := fake.NewClientset(testNode("n1"), testService("w"), testPod("w", 0))
	refused := make(chan string, 100)
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		refused <- action.GetResource().Resource
		return true, nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
		}}
	})
	l := lead(t, client)
	got := []string{<-refused, <-refused}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"endpoints", "endpointslices"}, got); diff != "" {
		t.Error(diff)
	}
	// Ten retries would be over by then.
	l.until("the queue is empty", func() bool { t := l.publisher.term.Load(); return t != nil && t.queue.Len() == 0 })
	if n := l.publisher.term.Load().queue.NumRequeues(task{kindSlices, types.NamespacedName{Namespace: "ns", Name: "w"}}); n != 0 {
		t.Errorf("%d retries", n)
	}
}

// TestFailedWritesAreRepeated: one error in two, and everything is published in the end.
func TestFailedWritesAreRepeated(t *testing.T) {
	client := fake.NewClientset(testNode("n1"), testService("w"), testPod("w", 0))
	named(client)
	var calls atomic.Int64
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if slices.Contains([]string{"create", "update", "delete"}, action.GetVerb()) && calls.Add(1)%2 == 1 {
			return true, nil, apierrors.NewInternalError(fmt.Errorf("try again"))
		}
		return false, nil, nil
	})
	l := lead(t, client)
	l.until("slices", l.has(SliceController, "IPv4 http/8080: 10.0.0.1=true"))
	l.until("object", l.hasObjects("w: http/8080/TCP: 10.0.0.1;"))
}

func TestWithoutLeadershipNothingIsDone(t *testing.T) {
	p, err := New(Config{Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	p.Changed([]types.NamespacedName{{Namespace: "ns", Name: "w"}})
	p.NodesChanged(t.Context())
	if p.term.Load() != nil {
		t.Error("a term began")
	}
}
