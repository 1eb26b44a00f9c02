package kube

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/proto/fwd"
)

// TestFreshListIsWhatTheFeedSees: a fresh list gives the same endpoints as the watches do, with and without Pods.
func TestFreshListIsWhatTheFeedSees(t *testing.T) {
	client := fake.NewClientset(testNode("n0", "a"), testNode("n1", "b"))
	for i := range 30 {
		label := map[string]string{"app": fmt.Sprint(i % 7)}
		for _, o := range []runtime.Object{
			testService(fmt.Sprintf("s%d", i), label),
			testPod(fmt.Sprintf("p%d", i), fmt.Sprintf("n%d", i%3), fmt.Sprintf("10.0.0.%d", i+1), label), // n2 is unknown
			testSlice(fmt.Sprintf("e%d", i), fmt.Sprintf("s%d", i), []string{"ours", "somebody"}[i%2], fmt.Sprintf("10.0.1.%d", i+1)),
		} {
			if err := client.Tracker().Add(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := startFeed(t, client)
	fresh, err := List(t.Context(), client, true)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, svc := range fresh.Services() {
		eps, _ := f.feed.EndpointsIn(fresh, svc)
		got[svc.Name] = describe(eps)
	}
	if diff := cmp.Diff(f.last.Services, got); diff != "" {
		t.Errorf("(-watched +listed):\n%s", diff)
	}
	client.ClearActions()
	reading, err := List(t.Context(), client, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range client.Actions() {
		if a.GetResource().Resource == "pods" {
			t.Error("Pods are listed although they are not watched")
		}
	}
	svc, _ := reading.Service(types.NamespacedName{Namespace: "ns", Name: "s1"})
	if eps, _ := f.feed.EndpointsIn(reading, svc); len(eps) != 1 {
		t.Errorf("endpoints from slices: %v", describe(eps))
	}
}

// TestFreshListIsWhole: a list of which a part fails is none.
func TestFreshListIsWhole(t *testing.T) {
	for _, resource := range []string{"services", "nodes", "endpointslices", "pods"} {
		client := fake.NewClientset()
		client.PrependReactor("list", resource, func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
		if o, err := List(t.Context(), client, true); err == nil || o != nil {
			t.Errorf("%s fail: %v, %v", resource, o, err)
		}
	}
}

func TestAgents(t *testing.T) {
	o, _ := newTestObjects(t, fake.NewClientset())
	add(t, o.pods.GetIndexer(), testPod("agent", "n1", "10.0.0.1", nil))
	if got, want := o.Agents("ns"), []fwd.AgentPod{{Name: "agent", UID: "agent", Node: "n1"}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := o.Agents("other"); len(got) > 0 {
		t.Errorf("found in another namespace: %+v", got)
	}
	meta := metadataOf("Pod")
	meta.Namespace, meta.Name, meta.UID, meta.Annotations = "ns", "agent", "u", map[string]string{"large": "x"}
	kept, err := strip(meta)
	if err != nil {
		t.Fatal(err)
	}
	byNamespace := toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}
	reading := &Objects{agents: toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, meta, 0, byNamespace)}
	add(t, reading.agents.GetIndexer(), kept)
	if got, want := reading.Agents("ns"), []fwd.AgentPod{{Name: "agent", UID: "u"}}; !slices.Equal(got, want) {
		t.Errorf("by metadata: %+v, want %+v", got, want)
	}
	if got := (&Objects{}).Agents("ns"); len(got) > 0 {
		t.Errorf("found without any watch: %+v", got)
	}
}
