package endpoints_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

// TestFromPodsAgreesWithTheLibrary holds what is forwarded equal to what is published: the slices that the library writes
// for a Service, read by FromSlices, are the endpoints that FromPods computes.
func TestFromPodsAgreesWithTheLibrary(t *testing.T) {
	seen := map[string]int{}
	const runs = 400
	for seed := range uint64(runs) {
		g := generator{rand.New(rand.NewPCG(seed, 1))}
		svc, pods := g.service(), g.pods()
		library := newLibrary(t, nodes)
		err := library.reconciler.Reconcile(logr.Discard(), svc, pods, nil, time.Time{})
		fromLibrary, problems := endpoints.FromSlices(svc, library.written)
		if len(problems) > 0 {
			t.Fatalf("seed %d: the library's slices: %v", seed, problems)
		}
		ours, _, incomplete := endpoints.FromPods(svc, pods, nodes)
		if d := cmp.Diff(text(fromLibrary), text(ours)); d != "" {
			t.Fatalf("seed %d: (-library +ours):\n%s", seed, d)
		}
		if incomplete != (err != nil) {
			t.Fatalf("seed %d: incomplete %v, the library's error: %v", seed, incomplete, err)
		}
		for _, e := range ours {
			note(seen, "ready", e.Ready)
			note(seen, "draining", e.Serving && e.Terminating)
			note(seen, "IPv6", e.Addr.Is6())
			note(seen, "two ports", len(e.Ports) == 2)
			note(seen, "zone hint", len(e.HintZones) > 0)
			note(seen, "node hint", len(e.HintNodes) > 0)
		}
		note(seen, "incomplete", incomplete)
	}
	for _, feature := range []string{"ready", "draining", "IPv6", "two ports", "zone hint", "node hint", "incomplete"} {
		if seen[feature] < runs/20 {
			t.Errorf("%s: seen %d times in %d clusters: the generator tests nothing", feature, seen[feature], runs)
		}
	}
}

func note(seen map[string]int, feature string, is bool) {
	if is {
		seen[feature]++
	}
}

// library is the reconciler with a clientset that keeps what is created.
type library struct {
	reconciler *endpointslice.Reconciler
	written    []*discoveryv1.EndpointSlice
}

func newLibrary(t *testing.T, zones endpoints.Zones) *library {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, zone := range zones {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if zone != "" {
			n.Labels = map[string]string{corev1.LabelTopologyZone: zone}
		}
		if err := indexer.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	l := &library{}
	client := fake.NewClientset()
	client.PrependReactor("create", "endpointslices", func(a kubetesting.Action) (bool, runtime.Object, error) {
		create, ok := a.(kubetesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		slice, ok := create.GetObject().(*discoveryv1.EndpointSlice)
		if !ok {
			return false, nil, nil
		}
		slice.Name = fmt.Sprintf("%s%d", slice.GenerateName, len(l.written))
		delete(slice.Labels, corev1.IsHeadlessService) // FromSlices passes over what nobody forwards
		l.written = append(l.written, slice)
		return true, slice, nil
	})
	l.reconciler = endpointslice.NewReconciler(client, corelisters.NewNodeLister(indexer), 100,
		endpointsliceutil.NewEndpointSliceTracker(), nil, record.NewFakeRecorder(100), "fairlead.io",
		endpointslice.WithPreferSameTrafficDistributionEnabled(true))
	return l
}

// generator makes random Services and Pods out of few values, so that they meet.
type generator struct{ *rand.Rand }

func (g generator) one(in int) bool { return g.IntN(in) == 0 }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

func (g generator) service() *corev1.Service {
	svc := service()
	svc.Spec.IPFamilies = pick(g, []corev1.IPFamily{corev1.IPv4Protocol}, []corev1.IPFamily{corev1.IPv6Protocol},
		[]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, nil)
	if g.one(4) {
		svc.Spec.ClusterIP = corev1.ClusterIPNone
	}
	svc.Spec.PublishNotReadyAddresses = g.one(4)
	if g.one(2) {
		svc.Spec.TrafficDistribution = pick(g, new("PreferClose"), new("PreferSameZone"), new("PreferSameNode"), new("Unknown"))
	}
	if g.one(6) {
		svc.Annotations = map[string]string{corev1.AnnotationTopologyMode: pick(g, "Auto", "auto", "Disabled")}
	}
	svc.Spec.Ports = nil
	for _, name := range []string{"p", "q"}[:1+g.IntN(2)] {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
			Name: name, Port: 80, Protocol: pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP),
			TargetPort: pick(g, intstr.FromInt32(8080), intstr.FromString("http"), intstr.FromString("dns")),
		})
	}
	return svc
}

func (g generator) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range g.IntN(8) {
		p := pod(on(pick(g, "n1", "n2", "n3", "n3", "n1", "n9", "")), func(p *corev1.Pod) { p.Name = fmt.Sprintf("web-%d", i) })
		p.Status.Phase = pick(g, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded)
		p.Status.PodIPs = g.podIPs()
		p.Status.Conditions[0].Status = pick(g, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown)
		if g.one(4) {
			terminating(p)
		}
		if g.one(4) {
			p.Spec.InitContainers = p.Spec.Containers
			p.Spec.InitContainers[0].RestartPolicy = pick(g, nil, new(corev1.ContainerRestartPolicyAlways))
			p.Spec.Containers = nil
		}
		if g.one(4) {
			p.Spec.Hostname, p.Spec.Subdomain = p.Name, "web"
		}
		pods = append(pods, p)
	}
	return pods
}

// podIPs are none, or one or more of either family, now and then one that another Pod has.
func (g generator) podIPs() []corev1.PodIP {
	var all []corev1.PodIP
	for range 1 + g.IntN(2) {
		all = append(all, pick(g,
			corev1.PodIP{IP: fmt.Sprintf("10.244.1.%d", g.IntN(30))}, corev1.PodIP{IP: fmt.Sprintf("fd00::%x", g.IntN(30))},
			corev1.PodIP{IP: fmt.Sprintf("010.244.2.00%d", g.IntN(8))}, corev1.PodIP{IP: fmt.Sprintf("fd00:0:0::1%d", g.IntN(8))}))
	}
	all = slices.Compact(all)
	if g.one(8) {
		return nil
	}
	return all
}
