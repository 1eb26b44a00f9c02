package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead/fairlead/test/scenario/script"
)

// team is a Service with a ready Pod and one that is not.
const team = `What is published.
-- apply --
kind: Service
metadata: {name: web, labels: {owner: team}}
spec: {clusterIP: 10.96.0.100, selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
{kind: Pod, metadata: {name: a, labels: {app: web}}, spec: {nodeName: n1}, status: {podIPs: [{ip: 10.244.1.5}], conditions: [{type: Ready, status: "True"}]}}
---
{kind: Pod, metadata: {name: b, labels: {app: web}}, spec: {nodeName: n2}, status: {podIPs: [{ip: 10.244.2.5}], conditions: [{type: Ready, status: "False"}]}}
`

// testPublished: EndpointSlices and Endpoints objects say what the Pods do, in whatever order things came; they go with
// their Service, also when it was deleted while no controller was there. The API server's own Service is left alone.
func testPublished(t *testing.T, b *bed) {
	own := b.ownObjects(t)
	s := parse(t, team)
	for _, v := range s.Variants() {
		t.Run(v.Name, func(t *testing.T) {
			b.perform(t, v.Script, func() {})
			b.publishes(t, "10.244.1.5:8080 ready a n1", "10.244.2.5:8080 unready b n2")
			if err := b.objects.delete(t.Context(), script.Ref{Kind: "Pod", Name: "a"}, 0); err != nil {
				t.Fatal(err)
			}
			b.publishes(t, "10.244.2.5:8080 unready b n2")
			b.clear(t, s, v.Name == "everything twice")
			b.withoutObject(t)
		})
	}
	t.Run("deleted while away", func(t *testing.T) {
		b.perform(t, s, func() {})
		b.publishes(t, "10.244.1.5:8080 ready a n1", "10.244.2.5:8080 unready b n2")
		b.restart(t, func() {
			if err := b.objects.delete(t.Context(), script.Ref{Kind: "Service", Name: "web"}, 0); err != nil {
				t.Fatal(err)
			}
		})
		b.withoutObject(t)
		b.clear(t, s, false)
	})
	t.Run("another replica takes over", func(t *testing.T) {
		b.perform(t, s, func() {})
		other := startController(t, b, 7483)
		b.publishes(t, "10.244.1.5:8080 ready a n1", "10.244.2.5:8080 unready b n2")
		if err := b.controller.end(); err != nil {
			t.Fatal(err)
		}
		if err := b.objects.delete(t.Context(), script.Ref{Kind: "Pod", Name: "a"}, 0); err != nil {
			t.Fatal(err)
		}
		b.publishes(t, "10.244.2.5:8080 unready b n2")
		b.controller = startController(b.owner, b, streamPort)
		if err := other.end(); err != nil {
			t.Fatal(err)
		}
		b.clear(t, s, false)
	})
	if got := b.ownObjects(t); got != own {
		t.Errorf("default/kubernetes is now %s, was %s", got, own)
	}
}

// publishes waits until slices and Endpoints object of the Service web have these endpoints and nothing else.
func (b *bed) publishes(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, "EndpointSlices", func() error {
		if got, err := b.slicesOfWeb(t); err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("have %q, want %q (%w)", got, want, err)
		}
		return nil
	})
	eventually(t, "Endpoints", func() error {
		if got, err := b.objectOfWeb(t); err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("have %q, want %q (%w)", got, want, err)
		}
		return nil
	})
}

// slicesOfWeb describes endpoints as "address:port ready|unready pod node", sorted. The slices must have the labels of the
// Service, and it as their owner.
func (b *bed) slicesOfWeb(t *testing.T) ([]string, error) {
	t.Helper()
	list, err := b.api.Client.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=web"})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, s := range list.Items {
		if s.Labels["owner"] != "team" || len(s.OwnerReferences) != 1 || s.OwnerReferences[0].Name != "web" {
			return nil, fmt.Errorf("slice %s: labels %v, owners %v", s.Name, s.Labels, s.OwnerReferences)
		}
		for _, e := range s.Endpoints {
			for _, p := range s.Ports {
				found = append(found, published{e.Addresses[0], *p.Port, ptr.Deref(e.Conditions.Ready, true), e.TargetRef.Name, ptr.Deref(e.NodeName, "")}.String())
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// objectOfWeb describes the Endpoints object in the same way.
func (b *bed) objectOfWeb(t *testing.T) ([]string, error) {
	t.Helper()
	object, err := b.api.Client.CoreV1().Endpoints(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, subset := range object.Subsets {
		for _, p := range subset.Ports {
			for _, a := range subset.Addresses {
				found = append(found, published{a.IP, p.Port, true, a.TargetRef.Name, ptr.Deref(a.NodeName, "")}.String())
			}
			for _, a := range subset.NotReadyAddresses {
				found = append(found, published{a.IP, p.Port, false, a.TargetRef.Name, ptr.Deref(a.NodeName, "")}.String())
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// published is one endpoint of either kind of object.
type published struct {
	ip        string
	port      int32
	ready     bool
	pod, node string
}

func (p published) String() string {
	return fmt.Sprintf("%s:%d %s %s %s", p.ip, p.port, map[bool]string{true: "ready", false: "unready"}[p.ready], p.pod, p.node)
}

// withoutObject waits until the Endpoints object of web is gone. Slices are left to the garbage collector.
func (b *bed) withoutObject(t *testing.T) {
	t.Helper()
	eventually(t, "no Endpoints", func() error {
		_, err := b.api.Client.CoreV1().Endpoints(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("Endpoints s/web is still there (%w)", err)
	})
}

// ownObjects describes what the API server publishes about itself.
func (b *bed) ownObjects(t *testing.T) string {
	t.Helper()
	object, err := b.api.Client.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := b.api.Client.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions := []string{string(object.UID), object.ResourceVersion}
	for _, s := range list.Items {
		versions = append(versions, s.Name, s.ResourceVersion)
	}
	return strings.Join(versions, " ")
}
