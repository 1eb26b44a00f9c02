package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// reach sets the first n Nodes' Ready condition.
func (f *feedTest) reach(n int, status corev1.ConditionStatus) {
	f.Helper()
	for i := range n {
		node, err := f.client.CoreV1().Nodes().Get(f.Context(), fmt.Sprintf("n%d", i), metav1.GetOptions{})
		f.must(node, err)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		f.must(f.client.CoreV1().Nodes().UpdateStatus(f.Context(), node, metav1.UpdateOptions{}))
	}
}

// report writes the conditions of the Pod on a Node; Ready takes the reason of containers.
func (f *feedTest) report(i int, ready corev1.ConditionStatus, containers corev1.PodCondition) {
	f.Helper()
	p, err := f.client.CoreV1().Pods("ns").Get(f.Context(), fmt.Sprintf("p%d", i), metav1.GetOptions{})
	f.must(p, err)
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: ready, Reason: containers.Reason},
		{Type: corev1.ContainersReady, Status: containers.Status},
	}
	f.must(f.client.CoreV1().Pods("ns").UpdateStatus(f.Context(), p, metav1.UpdateOptions{}))
}

// settled waits until the caches hold that many unreachable Nodes and unready Pods.
func (f *feedTest) settled(nodes, pods int) {
	f.Helper()
	o := f.feed.cfg.Objects
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		unknown, unready := 0, 0
		for _, n := range o.Nodes() {
			if unreachable(n) {
				unknown++
			}
		}
		for _, p := range o.allPods() {
			if conditionOf(p, corev1.PodReady) == corev1.ConditionFalse {
				unready++
			}
		}
		if unknown == nodes && unready == pods {
			return
		}
		select {
		case <-tick.C:
		case <-f.sink.commits: // nobody else takes them meanwhile
		case <-deadline:
			f.Fatalf("%d Nodes unreachable and %d Pods unready, want %d and %d", unknown, unready, nodes, pods)
		}
	}
}

// ready counts the ready endpoints of a Service.
func (s state) ready(service string) int {
	n := 0
	for _, e := range s.Services[service] {
		if strings.Contains(e, "ready=true") {
			n++
		}
	}
	return n
}

// TestOutage: what the node lifecycle controller asserts of most Nodes at once is held back, what a kubelet says is not.
func TestOutage(t *testing.T) {
	const nodes = 10
	for _, tc := range []struct {
		name        string
		unreachable int
		ready       int
	}{{"all", 9, 9}, {"six of ten", 6, 9}, {"half", 5, 4}, {"one of ten", 1, 8}} {
		t.Run(tc.name, func(t *testing.T) {
			client := fake.NewClientset()
			label := map[string]string{"app": "a"}
			add := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			add(client.Tracker().Add(testService("s", label)))
			for i := range nodes {
				add(client.Tracker().Add(testNode(fmt.Sprintf("n%d", i), "z")))
				add(client.Tracker().Add(testPod(fmt.Sprintf("p%d", i), fmt.Sprintf("n%d", i), fmt.Sprintf("10.0.0.%d", i+1), label)))
			}
			f := startFeed(t, client)
			f.reach(tc.unreachable, corev1.ConditionUnknown)
			for i := range tc.unreachable { // as the node lifecycle controller does
				f.report(i, corev1.ConditionFalse, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
			}
			f.report(nodes-1, corev1.ConditionFalse, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady"})
			unready := min(nodes, tc.unreachable+1)
			f.settled(tc.unreachable, unready)
			f.must(f.client.CoreV1().Services("ns").Create(f.Context(), testService("later", label), metav1.CreateOptions{}))
			f.until(fmt.Sprintf("%d ready", tc.ready), func(s state) bool { return s.ready("later") == tc.ready })

			f.reach(tc.unreachable, corev1.ConditionTrue) // the Nodes are back, their kubelets have not spoken yet
			f.settled(0, unready)
			f.must(f.client.CoreV1().Services("ns").Create(f.Context(), testService("last", label), metav1.CreateOptions{}))
			f.until("the same after the Nodes are back", func(s state) bool { return s.ready("last") == tc.ready })
		})
	}
}

// TestAssertedUnready tells the node lifecycle controller's word from a kubelet's.
func TestAssertedUnready(t *testing.T) {
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, Reason: reason}
	}
	for name, tc := range map[string]struct {
		conditions []corev1.PodCondition
		want       bool
	}{
		"lifecycle":       {[]corev1.PodCondition{condition(corev1.PodReady, "False", ""), condition(corev1.ContainersReady, "True", "")}, true},
		"containers":      {[]corev1.PodCondition{condition(corev1.PodReady, "False", "ContainersNotReady"), condition(corev1.ContainersReady, "False", "ContainersNotReady")}, false},
		"readiness gates": {[]corev1.PodCondition{condition(corev1.PodReady, "False", "ReadinessGatesNotReady"), condition(corev1.ContainersReady, "True", "")}, false},
		"ready":           {[]corev1.PodCondition{condition(corev1.PodReady, "True", ""), condition(corev1.ContainersReady, "True", "")}, false},
		"nothing known":   {nil, false},
	} {
		if got := assertedUnready(&corev1.Pod{Status: corev1.PodStatus{Conditions: tc.conditions}}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestOutageEnds: after a while, readiness is believed again.
func TestOutageEnds(t *testing.T) {
	client := fake.NewClientset()
	if err := client.Tracker().Add(testNode("n0", "z")); err != nil {
		t.Fatal(err)
	}
	f := startFeed(t, client)
	o := f.feed.cfg.Objects
	o.outage.on.Store(true)
	f.feed.judge(t.Context(), false)
	if !o.outage.on.Load() {
		t.Error("the outage ends with the first Node that is back")
	}
	f.feed.judge(t.Context(), true)
	if o.outage.on.Load() {
		t.Error("the outage goes on after the time of relief")
	}
}

// TestDoubt: the node lifecycle controller's word on a Pod counts once it was waited for others, and not while most Nodes
// are lost.
func TestDoubt(t *testing.T) {
	asserted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "1"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
	}}}
	successor := asserted.DeepCopy()
	successor.UID = "2"
	o := &outage{}
	holds := func(step string, p *corev1.Pod, want bool) {
		t.Helper()
		if held := conditionOf(o.believed([]*corev1.Pod{p})[0], corev1.PodReady) == corev1.ConditionTrue; held != want {
			t.Errorf("%s: held back %t, want %t", step, held, want)
		}
	}
	holds("without doubts", asserted, false)
	o.doubts.Store(true)
	holds("just said", asserted, true)
	o.accept(asserted)
	holds("waited for", asserted, false)
	holds("of its successor", successor, true)
	o.on.Store(true)
	holds("most Nodes are lost", asserted, true)
	o.on.Store(false)
	o.retract(asserted)
	holds("said again", asserted, true)
}
