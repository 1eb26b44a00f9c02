package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

const removalNamespace = "fairlead-system"

// leaving is a cluster that an installation leaves. What it does, it does when the removal says what it waits for.
type leaving struct {
	t      *testing.T
	client *fake.Clientset
	agents *appsv1.DaemonSet
	said   []string
	// answers are what happens after a progress that contains the key.
	answers map[string]func()
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: removalNamespace, Name: name}
}

func newLeaving(t *testing.T) *leaving {
	x := &leaving{t: t, answers: map[string]func(){}}
	x.agents = &appsv1.DaemonSet{ObjectMeta: named(agentSet)}
	x.agents.Generation, x.agents.Status.ObservedGeneration = 2, 1
	x.agents.Spec.Template.Spec.Containers = []corev1.Container{{Name: "agent"}}
	objects := []runtime.Object{
		x.agents,
		&appsv1.Deployment{ObjectMeta: named(controllerSet), Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}},
		&corev1.ConfigMap{ObjectMeta: named("fairlead-controllers")}, &corev1.ConfigMap{ObjectMeta: named("owner")},
		&corev1.Secret{ObjectMeta: named("fairlead-ca")}, &corev1.Secret{ObjectMeta: named("owner")},
		&coordinationv1.Lease{ObjectMeta: named("fairlead-controller")}, &coordinationv1.Lease{ObjectMeta: named("owner")},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: removalNamespace, Name: "fairlead-replica-1", Labels: map[string]string{"fairlead.io/replica": "true"}}},
		&discoveryv1.EndpointSlice{ObjectMeta: named("fairlead-controller-1")},
	}
	x.client = fake.NewClientset(objects...)
	return x
}

// pod makes a Pod of a component, in place of the one of that name.
func (x *leaving) pod(component, node, container string, ready corev1.ConditionStatus) {
	x.t.Helper()
	p := &corev1.Pod{ObjectMeta: named(component + "-" + node), Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: container}}}}
	p.Labels = map[string]string{"app.kubernetes.io/name": component}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready}}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	_ = x.client.Tracker().Delete(pods, removalNamespace, p.Name)
	x.must(x.client.Tracker().Add(p))
}

// nodes is what the DaemonSet says: updated of 3 nodes have the new Pod, and ready a Pod that is ready.
func (x *leaving) nodes(updated, ready int32) {
	x.t.Helper()
	sets := x.client.AppsV1().DaemonSets(removalNamespace)
	d, err := sets.Get(context.WithoutCancel(x.t.Context()), agentSet, metav1.GetOptions{})
	x.must(err)
	d.Status = appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: updated, NumberReady: ready}
	_, err = sets.Update(x.t.Context(), d, metav1.UpdateOptions{})
	x.must(err)
}

func (x *leaving) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// run is given up once it says something with the words givesUp; without them it goes on to its end.
func (x *leaving) run(givesUp string) error {
	ctx, cancel := context.WithCancelCause(x.t.Context())
	defer cancel(nil)
	return removal{
		client: x.client, namespace: removalNamespace, lease: "fairlead-controller", lookAgain: time.Millisecond,
		patch: []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"done"}]}}}}`),
		say: func(progress string) {
			x.said = append(x.said, progress)
			if givesUp != "" && strings.Contains(progress, givesUp) {
				cancel(errors.New("not done"))
			}
			for key, answer := range x.answers {
				if strings.Contains(progress, key) {
					answer()
				}
			}
		},
	}.run(ctx)
}

// left are the names of all objects by resource.
func (x *leaving) left() map[string][]string {
	all := map[string][]string{}
	for _, gvr := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithResource("secrets"),
		coordinationv1.SchemeGroupVersion.WithResource("leases"), discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
	} {
		for _, name := range []string{"owner", "fairlead-controllers", "fairlead-ca", "fairlead-controller", "fairlead-replica-1", "fairlead-controller-1"} {
			if _, err := x.client.Tracker().Get(gvr, removalNamespace, name); err == nil {
				all[gvr.Resource] = append(all[gvr.Resource], name)
			}
		}
	}
	return all
}

// TestRemoval: agents first, then controllers, then what they made and nothing else.
func TestRemoval(t *testing.T) {
	x := newLeaving(t)
	for _, node := range []string{"n1", "n2", "n3"} {
		x.pod(agentSet, node, "agent", corev1.ConditionTrue)
	}
	x.pod(controllerSet, "n1", "controller", corev1.ConditionTrue)
	everything := map[string][]string{
		"configmaps": {"owner", "fairlead-controllers"}, "secrets": {"owner", "fairlead-ca"},
		"leases": {"owner", "fairlead-controller", "fairlead-replica-1"}, "endpointslices": {"fairlead-controller-1"},
	}
	x.answers["missing an answer of kube-controller-manager"] = func() {
		x.pod(agentSet, "n1", "done", corev1.ConditionTrue)
		x.pod(agentSet, "n2", "done", corev1.ConditionFalse)
		x.nodes(2, 2)
	}
	x.answers["missing n2, n3"] = func() {
		x.pod(agentSet, "n2", "done", corev1.ConditionTrue)
		x.pod(agentSet, "n3", "done", corev1.ConditionTrue)
		x.nodes(3, 3)
	}
	x.answers["missing the end of Pod fairlead-controller-n1"] = func() {
		if got := x.left(); !maps.EqualFunc(got, everything, slices.Equal) {
			t.Errorf("left while controllers run: %v", got)
		}
		x.must(x.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), removalNamespace, "fairlead-controller-n1"))
	}
	x.must(x.run(""))
	if len(x.said) != 8 {
		t.Errorf("said:\n%s", strings.Join(x.said, "\n"))
	}
	want := map[string][]string{"configmaps": {"owner"}, "secrets": {"owner"}, "leases": {"owner"}, "endpointslices": {"fairlead-controller-1"}}
	if got := x.left(); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("left %v, want %v", got, want)
	}
	d, err := x.client.AppsV1().Deployments(removalNamespace).Get(t.Context(), controllerSet, metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 0 {
		t.Errorf("deployment %+v (%v)", d, err)
	}
	x.must(x.run("")) // again
}

// TestRemovalOfNothing: what is not there is removed.
func TestRemovalOfNothing(t *testing.T) {
	x := newLeaving(t)
	x.client = fake.NewClientset()
	x.must(x.run(""))
}

// TestRemovalTriesAgain: an API server that is away, or has not heard of rights, is asked again.
func TestRemovalTriesAgain(t *testing.T) {
	x := newLeaving(t)
	x.client = fake.NewClientset()
	failures := map[string]int{}
	x.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		key := a.GetVerb() + " " + a.GetResource().Resource
		if failures[key]++; failures[key] > 1 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), key, errors.New("not yet"))
	})
	x.must(x.run(""))
	if len(failures) != 8 {
		t.Errorf("asked: %v", failures)
	}
}

// TestRemovalFails: the error is one line that says what is left, on which nodes, and what to do.
func TestRemovalFails(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(x *leaving)
		said    string
		remedy  string
	}{
		{"nobody runs DaemonSets", func(*leaving) {}, "wait for the agents of all nodes to clean up: missing an answer of kube-controller-manager", "mend these nodes"},
		{"nodes are away", func(x *leaving) {
			x.nodes(1, 1)
			x.pod(agentSet, "n1", "done", corev1.ConditionTrue)
			x.pod(agentSet, "n3", "agent", corev1.ConditionTrue)
			x.pod(agentSet, "n2", "done", corev1.ConditionFalse)
		}, "wait for the agents of all nodes to clean up: missing n2, n3", "mend these nodes or delete their Nodes, and repeat helm uninstall; or run fairlead-agent cleanup on them by hand, then helm uninstall --no-hooks"},
		{"no Pod is made", func(x *leaving) { x.nodes(0, 0) }, "missing Pods on some of 3 nodes", "mend these nodes"},
		{"a controller stays", func(x *leaving) {
			x.nodes(3, 3)
			x.pod(controllerSet, "n1", "controller", corev1.ConditionFalse)
		}, "wait for the controllers to end: missing the end of Pod fairlead-controller-n1", "delete these Pods"},
		{"no rights", func(x *leaving) {
			x.client.PrependReactor("patch", "daemonsets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
		}, "ask the agents to clean up: forbidden", "see whether the API server answers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newLeaving(t)
			c.prepare(x)
			want := c.said + ": not done; " + c.remedy
			if err := x.run(c.said); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q", err, want)
			}
			if len(x.said) > 3 {
				t.Errorf("said:\n%s", strings.Join(x.said, "\n"))
			}
		})
	}
}
