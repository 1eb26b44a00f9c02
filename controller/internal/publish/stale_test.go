package publish

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// frozen is a Reader that sees one moment, however much is written.
type frozen struct {
	Reader
	service *corev1.Service
	pods    []*corev1.Pod
	slices  []*discoveryv1.EndpointSlice
	object  *corev1.Endpoints
}

func (f *frozen) Service(types.NamespacedName) (*corev1.Service, bool) {
	return f.service, f.service != nil
}
func (f *frozen) Pods(*corev1.Service) []*corev1.Pod { return f.pods }
func (f *frozen) Slices(types.NamespacedName) []*discoveryv1.EndpointSlice {
	return slices.Clone(f.slices)
}

func (f *frozen) Endpoints(types.NamespacedName) (*corev1.Endpoints, bool) {
	return f.object, f.object != nil
}
func (f *frozen) Nodes() []*corev1.Node { return []*corev1.Node{testNode("n1")} }
func (f *frozen) NodeLister() corelisters.NodeLister {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	_ = indexer.Add(testNode("n1")) // fails for objects without metadata alone
	return corelisters.NewNodeLister(indexer)
}

func frozenTerm(t *testing.T, r Reader, client *fake.Clientset) *term {
	t.Helper()
	events, err := NewEvents(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMetrics(prometheus.NewRegistry(), func() float64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	return newTerm(Config{Reader: r, Client: client, Events: events, MaxEndpointsPerSlice: 100, Logger: slog.New(slog.DiscardHandler)}, m)
}

// TestStaleCacheWritesNothing: between a write of ours and the cache's seeing it, nothing is written (SEMANTICS 1.11).
func TestStaleCacheWritesNothing(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "w"}
	ours := testSlice("w-1", "w", SliceController, "10.0.0.9")
	object := testEndpoints("w")
	object.ResourceVersion = "5"
	mirror := testSlice("m-1", "w", MirrorController, "10.0.0.9")
	r := &frozen{service: testService("w"), pods: pods(1), slices: []*discoveryv1.EndpointSlice{ours, mirror}, object: object}
	client := fake.NewClientset(ours, mirror, object)
	term := frozenTerm(t, r, client)

	newer := ours.DeepCopy()
	newer.Generation++
	term.slices.Update(newer)
	term.objects.set(key, "5")
	for _, k := range []kind{kindSlices, kindObject} {
		if err := term.sync(t.Context(), task{k, key}); !errors.Is(err, errStale) {
			t.Errorf("%v: %v, want errStale", k, err)
		}
	}
	r.service = testService("w", func(s *corev1.Service) { s.Spec.Selector = nil })
	newer = mirror.DeepCopy()
	newer.Generation++
	term.mirrors.Update(newer)
	if err := term.sync(t.Context(), task{kindMirror, key}); !errors.Is(err, errStale) {
		t.Errorf("mirror: %v, want errStale", err)
	}
	for _, a := range client.Actions() {
		t.Errorf("wrote %s %s", a.GetVerb(), a.GetResource().Resource)
	}

	r.service = testService("w")
	object.ResourceVersion = "6"
	if err := term.sync(t.Context(), task{kindObject, key}); err != nil {
		t.Errorf("after the cache has seen the write: %v", err)
	}
	if len(client.Actions()) != 1 {
		t.Errorf("actions %v, want one update", client.Actions())
	}
}

// TestObjectOutlivesNoService: a Service may go before the cache has seen the object that we wrote for it.
func TestObjectOutlivesNoService(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "w"}
	record := testEndpoints("w", aSubset())
	record.Annotations = map[string]string{resourcelock.LeaderElectionRecordAnnotationKey: "{}"}
	for name, before := range map[string]*corev1.Endpoints{"created": nil, "written over a record": record} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if before != nil {
				client = fake.NewClientset(before)
			}
			r := &frozen{service: testService("w"), pods: pods(1), object: before}
			term := frozenTerm(t, r, client)
			sync := func() {
				if err := term.sync(t.Context(), task{kindObject, key}); err != nil {
					t.Fatal(err)
				}
			}
			sync()
			r.service = nil
			sync()
			written, err := client.CoreV1().Endpoints("ns").Get(t.Context(), "w", metav1.GetOptions{})
			if err != nil {
				t.Fatalf("what the cache does not hold cannot be deleted yet: %v", err)
			}
			r.object = written
			term.onEndpoints(before, written)
			for term.queue.Len() > 0 {
				next, _ := term.queue.Get()
				term.attempt(t.Context(), next)
				term.queue.Done(next)
			}
			if _, err := client.CoreV1().Endpoints("ns").Get(t.Context(), "w", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the object is still there: %v", err)
			}
		})
	}
}

// TestUnexpectedChangesAreLookedAt: what we wrote ourselves is not, what others did is.
func TestUnexpectedChangesAreLookedAt(t *testing.T) {
	ours := testSlice("w-1", "w", SliceController, "10.0.0.1")
	edited := ours.DeepCopy()
	edited.Generation++
	renamed := testSlice("w-1", "other", SliceController)
	for _, c := range []struct {
		name        string
		before, now *discoveryv1.EndpointSlice
		want        int
	}{
		{"our own write", nil, ours, 0},
		{"an edit", ours, edited, 1},
		{"a deletion by somebody", ours, nil, 1},
		{"another Service's name", ours, renamed, 2},
		{"another author's name", ours, testSlice("w-1", "w", "somebody"), 1},
		{"upstream's name", ours, testSlice("w-2", "w", upstreamSliceController), 1},
		{"a slice of somebody else", nil, testSlice("x", "w", "somebody"), 0},
		{"a mirrored slice", nil, testSlice("m", "w", MirrorController), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			term := frozenTerm(t, &frozen{}, fake.NewClientset())
			term.slices.Update(ours)
			term.onSlice(c.before, c.now)
			if n := term.queue.Len(); n != c.want {
				t.Errorf("%d Services are looked at, want %d", n, c.want)
			}
		})
	}
	term := frozenTerm(t, &frozen{}, fake.NewClientset())
	term.slices.Update(ours)
	term.slices.ExpectDeletion(ours)
	term.onSlice(ours, nil)
	if term.queue.Len() != 0 {
		t.Error("our own deletion is looked at")
	}
}
