package kube

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

const (
	benchServices = 10000
	benchEach     = 10
)

// livePod is a Pod as a Deployment and a kubelet make one.
func livePod(service, n int) *corev1.Pod {
	p := testPod(fmt.Sprintf("app-%d-7d4b9c6f5d-%05d", service, n), fmt.Sprintf("node-%d", n%100), fmt.Sprintf("10.%d.%d.%d", service/250, service%250, n),
		map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", service), "app.kubernetes.io/part-of": "shop", "pod-template-hash": fmt.Sprintf("7d4b9c%d", service)})
	p.UID = types.UID(fmt.Sprintf("00000000-0000-0000-%04d-%012d", service, n))
	p.ManagedFields = managed()
	p.Spec.Containers = []corev1.Container{{
		Name: "c", Image: "registry.example/shop/app:v1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Env: []corev1.EnvVar{{Name: "A", Value: "B"}},
	}}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return p
}

func liveSlice(service int) *discoveryv1.EndpointSlice {
	name := fmt.Sprintf("app-%d", service)
	s := testSlice(name+"-abcde", name, "ours", "10.0.0.1")
	s.Endpoints = nil
	for n := range benchEach {
		yes, no, node, zone := true, false, fmt.Sprintf("node-%d", n%100), "zone-a"
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", service/250, service%250, n)},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			NodeName:   &node, Zone: &zone,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: fmt.Sprintf("app-%d-7d4b9c6f5d-%05d", service, n), UID: types.UID(fmt.Sprintf("%036d", service*10+n))},
		})
	}
	return s
}

// decoded returns an object as it comes off the wire: with strings of its own.
func decoded[T any, P interface {
	*T
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}](b *testing.B, obj P) P {
	b.Helper()
	wire, err := obj.Marshal()
	must(b, err)
	var out T
	must(b, P(&out).Unmarshal(wire))
	return &out
}

// BenchmarkMemory says what Objects holds of 10,000 Services with 10 Pods each, in bytes of heap.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		o, _ := benchObjects(b)
		before := heap()
		for service := range benchServices {
			for n := range benchEach {
				must(b, o.pods.GetIndexer().Add(stripPod(decoded(b, livePod(service, n)))))
			}
		}
		pods := heap()
		b.ReportMetric(float64(pods-before)/(benchServices*benchEach), "B/Pod")
		for service := range benchServices {
			must(b, o.slices.GetIndexer().Add(stripSlice(decoded(b, liveSlice(service)))))
		}
		slices := heap()
		b.ReportMetric(float64(slices-pods)/(benchServices*benchEach), "B/endpoint_of_slices")
		b.ReportMetric(float64(slices-before)/1e6, "MB")
		runtime.KeepAlive(o)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func benchObjects(b *testing.B) (*Objects, informers.SharedInformerFactory) {
	b.Helper()
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	o, err := NewObjects(Informers{
		Services: factory.Core().V1().Services().Informer(), Nodes: factory.Core().V1().Nodes().Informer(),
		Slices: factory.Discovery().V1().EndpointSlices().Informer(), Pods: factory.Core().V1().Pods().Informer(),
	})
	must(b, err)
	return o, factory
}

// BenchmarkPodEvent is one Pod's readiness from the handler to the end of the round, in a namespace of 10,000 Services.
func BenchmarkPodEvent(b *testing.B) {
	o, _ := benchObjects(b)
	for n := range 100 {
		must(b, o.nodes.GetIndexer().Add(testNode(fmt.Sprintf("node-%d", n), "a")))
	}
	for service := range benchServices {
		must(b, o.services.GetIndexer().Add(testService(fmt.Sprintf("app-%d", service), map[string]string{"app.kubernetes.io/name": fmt.Sprintf("app-%d", service), "app.kubernetes.io/part-of": "shop"})))
		for n := range benchEach {
			must(b, o.pods.GetIndexer().Add(stripPod(livePod(service, n))))
		}
	}
	f := NewFeed(FeedConfig{Objects: o, Sink: nothing{}, Logger: slog.New(slog.DiscardHandler)})
	ready, unready := stripPod(livePod(77, 3)), stripPod(livePod(77, 3))
	unready.Status.Conditions[0].Status = corev1.ConditionFalse
	b.ReportAllocs()
	for b.Loop() {
		must(b, o.pods.GetIndexer().Update(unready))
		f.onPod(event[corev1.Pod]{before: ready, now: unready})
		f.round(b.Context(), f.dirty.take())
		ready, unready = unready, ready
	}
}

type nothing struct{}

func (nothing) SetService(*corev1.Service, []endpoints.Endpoint) {}
func (nothing) DeleteService(string, string)                     {}
func (nothing) SetNode(*corev1.Node)                             {}
func (nothing) DeleteNode(string)                                {}
func (nothing) Commit(_ context.Context, r Round) {
	if len(r.Services) != 1 || time.Since(r.Cause) > time.Minute {
		panic(fmt.Sprint("unexpected round ", r))
	}
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
