package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

func managed() []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsType: "FieldsV1"}}
}

// fullPod has every field that decides about endpoints, and some that do not.
func fullPod() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	p := testPod("web-0", "n1", "10.0.0.1", map[string]string{"app": "web"})
	p.ManagedFields = managed()
	p.Annotations = map[string]string{"a": "b"}
	p.Spec.Hostname, p.Spec.Subdomain = "web-0", "web"
	p.Spec.Containers = []corev1.Container{
		{Name: "a", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 1, Protocol: corev1.ProtocolTCP}, {Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}},
		{Name: "b", Image: "i", Ports: []corev1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}}},
	}
	p.Spec.InitContainers = []corev1.Container{
		{Name: "once", Ports: []corev1.ContainerPort{{Name: "never", ContainerPort: 7, Protocol: corev1.ProtocolTCP}}},
		{Name: "sidecar", RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "proxy", ContainerPort: 15001, Protocol: corev1.ProtocolTCP}}},
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	return p
}

// TestStrippedPodGivesSameEndpoints: nothing that package endpoints reads is lost.
func TestStrippedPodGivesSameEndpoints(t *testing.T) {
	svc := testService("web", map[string]string{"app": "web"})
	svc.Spec.Ports = nil
	for _, name := range []string{"http", "dns", "proxy", "never"} {
		protocol := corev1.ProtocolTCP
		if name == "dns" {
			protocol = corev1.ProtocolUDP
		}
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: name, Port: 80, Protocol: protocol, TargetPort: intstr.FromString(name)})
	}
	zones := endpoints.Zones{"n1": "a"}
	for name, change := range map[string]func(*corev1.Pod){
		"ready":       func(*corev1.Pod) {},
		"unready":     func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse },
		"terminating": func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now },
		"done":        func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"no address":  func(p *corev1.Pod) { p.Status.PodIPs = nil },
	} {
		t.Run(name, func(t *testing.T) {
			pod := fullPod()
			change(pod)
			before := pod.DeepCopy()
			stripped := stripPod(pod)
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("strip changed its argument:\n%s", diff)
			}
			if len(stripped.ManagedFields) > 0 || len(stripped.Annotations) > 0 || len(stripped.Spec.Containers) > 1 {
				t.Errorf("kept too much: %v", stripped)
			}
			want, _, _ := endpoints.FromPods(svc, []*corev1.Pod{pod}, zones)
			got, _, _ := endpoints.FromPods(svc, []*corev1.Pod{stripped}, zones)
			if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b endpoints.Endpoint) bool { return endpoints.Compare(a, b) == 0 })); diff != "" {
				t.Errorf("endpoints (-full +stripped):\n%s", diff)
			}
			if name == "ready" && (len(got) != 1 || len(got[0].Ports) != 3) {
				t.Errorf("endpoints: %v, want one with three ports", got)
			}
		})
	}
}

// TestStripIsIdempotent: client-go may transform an object again.
func TestStripIsIdempotent(t *testing.T) {
	node := testNode("n1", "a")
	node.ManagedFields = managed()
	node.Status = corev1.NodeStatus{
		Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
		Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(time.Unix(1, 0))}},
	}
	svc := testService("web", nil)
	svc.ManagedFields = managed()
	svc.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", corev1.AnnotationTopologyMode: "Auto"}
	yes, zone := true, "a"
	for _, obj := range []runtime.Object{
		fullPod(), node, svc,
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "s", ManagedFields: managed(), OwnerReferences: []metav1.OwnerReference{{UID: "u"}}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}, Zone: &zone}},
		},
		&corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Name: "e", ManagedFields: managed()},
			Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1", TargetRef: &corev1.ObjectReference{Kind: "Pod"}}}}},
		},
	} {
		before := obj.DeepCopyObject()
		once, err := strip(obj)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := strip(once)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, obj); diff != "" {
			t.Errorf("%T: strip changed its argument:\n%s", obj, diff)
		}
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Errorf("%T (-once +twice):\n%s", obj, diff)
		}
		if m, ok := once.(metav1.Object); !ok || len(m.GetManagedFields()) > 0 {
			t.Errorf("%T: kept managed fields", obj)
		}
	}
	kept := stripNode(node)
	if len(kept.Status.Allocatable) != 1 || !kept.Status.Conditions[0].LastHeartbeatTime.IsZero() {
		t.Errorf("node status: kept %v", kept.Status)
	}
	if got := stripService(svc).Annotations; len(got) != 1 {
		t.Errorf("service annotations: kept %v", got)
	}
}

func TestStripPassesTombstones(t *testing.T) {
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "k", Obj: fullPod()}
	got, err := strip(tombstone)
	if err != nil || got.(toolscache.DeletedFinalStateUnknown).Key != "k" {
		t.Errorf("strip(tombstone) = %v, %v", got, err)
	}
}
