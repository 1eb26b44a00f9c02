package e2e

import (
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/web"
	"github.com/fairlead/fairlead/test/workload"
)

// TestE2ELastPodLeaves deletes the only Pod of a Service: it serves to its end, for clients on every node that may use Pods of
// other nodes, and then they are refused.
func TestE2ELastPodLeaves(t *testing.T) {
	first, third := bed.Cluster.Nodes[0], bed.Cluster.Nodes[2]
	balancer := externals(61)
	route(t, first, balancer...)
	svc := mount(t, "last", func(s *core.ServiceSpec) {
		s.Selector = map[string]string{"app": "last"}
		s.Type, s.ExternalTrafficPolicy = core.ServiceTypeLoadBalancer, core.ServiceExternalTrafficPolicyLocal
	})
	svc.balance(t, vips(balancer...)...)
	pod := startPod(t, web.PodConfig{Name: "last", Node: first.Name, Labels: svc.Spec.Selector, Drain: time.Minute, StayReady: true})
	last := answers(pod.Name).keeping()
	served := func() {
		for _, family := range families() {
			for _, protocol := range protocols() {
				outside(first).expect(t, protocol, at(balancer[family]), last)
				for _, c := range []client{inPod(bed.apart), onNode(third)} {
					c.expect(t, protocol, svc.clusterIP(family), last)
					c.expect(t, protocol, at(balancer[family]), last)
				}
			}
		}
	}
	expectHealth(t, svc, first, 1)
	served()
	if err := bed.Cluster.Client.CoreV1().Pods(web.Namespace).Delete(t.Context(), pod.Name, meta.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectHealth(t, svc, first, 0) // from here on the kernel holds the Pod as one that ends
	served()
	if err := web.EndPod(t.Context(), bed.Cluster.Client, pod.Name); err != nil {
		t.Fatal(err)
	}
	for _, family := range families() {
		inPod(bed.apart).expect(t, workload.TCP, svc.clusterIP(family), want{fate: refused})
	}
}
