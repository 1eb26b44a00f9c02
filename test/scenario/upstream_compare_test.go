package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// lookEvery is how often both clusters are looked at; twice the same in a row is quiet.
	lookEvery = 60 * time.Millisecond
	// nudgeEvery is how often upstream's controllers are made to look again, see upstream_differences_test.go.
	nudgeEvery = 700 * time.Millisecond
	// mirrorNudge is at how many nudges upstream's mirrored slices are freed as well.
	mirrorNudge = 4
)

// agree waits until both clusters are quiet and say the same, and then removes what a garbage collector would.
func (c *clusters) agree(t *testing.T) {
	t.Helper()
	if err := c.both(t, c.moveSentinels); err != nil {
		t.Fatal(err)
	}
	if c.round%4 == 3 {
		c.nudge(t)
	}
	nudges := 0
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look, nudge := time.NewTicker(lookEvery), time.NewTicker(nudgeEvery)
	defer look.Stop()
	defer nudge.Stop()
	var theirs, ours, last string
	for {
		select {
		case <-c.manager.Done():
			t.Fatal(c.manager.Ended())
		case <-deadline.C:
			t.Fatalf("round %d: the clusters differ for %v (- upstream's, + ours):\n%s\nafter these steps:\n%s\n%v",
				c.round, patience, difference(theirs, ours), strings.Join(c.steps, "\n"), c.manager.Ended())
		case <-nudge.C:
			c.nudge(t)
			if nudges++; nudges%mirrorNudge == 0 {
				c.freeMirrors(t)
			}
			continue
		case <-look.C:
		}
		theirs, ours = c.describe(t, c.upstream), c.describe(t, c.ours)
		if theirs == ours && ours == last && strings.Count(ours, fmt.Sprintf("round=%d ", c.round)) >= 3 {
			c.features.count(ours, c.perSlice)
			c.collect(t)
			return
		}
		last = ours
	}
}

// difference shows the lines that only one of two texts has.
func difference(a, b string) string {
	var out []string
	left, right := strings.Split(a, "\n"), strings.Split(b, "\n")
	for _, line := range left {
		if !slices.Contains(right, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range right {
		if !slices.Contains(left, line) {
			out = append(out, "+ "+line)
		}
	}
	if len(out) == 0 && a == b {
		return "nothing: it changes all the time, or the last sentinel has not been seen:\n" + a
	}
	slices.SortStableFunc(out, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return strings.Join(out, "\n")
}

// sentinels is the namespace of three objects that change after each batch: what is published for them tells that the
// controllers have seen the batch, since each watch is in order.
const sentinels = "sentinels"

func prepareSentinels(ctx context.Context, client kubernetes.Interface) error {
	if err := createNamespace(ctx, client, sentinels); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: "s", Labels: map[string]string{"app": "s"}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
	ports := []corev1.ServicePort{{Port: 80}}
	selecting := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: meta.Labels, Ports: ports}}
	mirrored := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: corev1.ServiceSpec{Ports: ports}}
	_, errPod := client.CoreV1().Pods(sentinels).Create(ctx, pod, metav1.CreateOptions{})
	_, errSelecting := client.CoreV1().Services(sentinels).Create(ctx, selecting, metav1.CreateOptions{})
	_, errMirrored := client.CoreV1().Services(sentinels).Create(ctx, mirrored, metav1.CreateOptions{})
	_, errObject := client.CoreV1().Endpoints(sentinels).Create(ctx, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{})
	return errors.Join(errPod, errSelecting, errMirrored, errObject)
}

// moveSentinels marks the round: by a label of the Service and of the Endpoints, and by the Pod's address.
func (c *clusters) moveSentinels(ctx context.Context, client kubernetes.Interface) error {
	label := fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, c.round)
	address := fmt.Sprintf("10.243.0.%d", c.round)
	subsets := fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}},"subsets":[{"addresses":[{"ip":%q}],"ports":[{"port":80}]}]}`, c.round, address)
	status := fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}],"conditions":[{"type":"Ready","status":"True"}]}}`, address, address)
	_, errObject := client.CoreV1().Endpoints(sentinels).Patch(ctx, "m", types.StrategicMergePatchType, subsets, metav1.PatchOptions{})
	_, errPod := client.CoreV1().Pods(sentinels).Patch(ctx, "s", types.MergePatchType, status, metav1.PatchOptions{}, "status")
	_, errService := client.CoreV1().Services(sentinels).Patch(ctx, "s", types.MergePatchType, label, metav1.PatchOptions{})
	return errors.Join(errObject, errPod, errService)
}

// owners are the UIDs of all Services and Endpoints.
type owners map[types.UID]bool

// collect deletes slices whose owner is gone, in both clusters, as the garbage collector does.
func (c *clusters) collect(t *testing.T) {
	t.Helper()
	err := c.both(t, func(ctx context.Context, client kubernetes.Interface) error {
		found, err := snapshot(ctx, client)
		if err != nil {
			return err
		}
		for i := range found.slices {
			if s := &found.slices[i]; found.isOrphan(s) {
				if err := gone(client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// publishedObjects are all slices and Endpoints of a cluster, but those of the API server itself.
type publishedObjects struct {
	slices  []discoveryv1.EndpointSlice
	objects []corev1.Endpoints
	owners  owners
	// services are the names of those that exist.
	services map[types.NamespacedName]bool
}

func snapshot(ctx context.Context, client kubernetes.Interface) (*publishedObjects, error) {
	services, errServices := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	objects, errObjects := client.CoreV1().Endpoints(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	found, errSlices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err := errors.Join(errServices, errObjects, errSlices); err != nil {
		return nil, err
	}
	p := &publishedObjects{slices: found.Items, objects: objects.Items, owners: owners{}, services: map[types.NamespacedName]bool{}}
	for i := range services.Items {
		svc := &services.Items[i]
		p.owners[svc.UID] = true
		p.services[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}] = true
	}
	for i := range objects.Items {
		p.owners[objects.Items[i].UID] = true
	}
	return p, nil
}

func (p *publishedObjects) isOrphan(s *discoveryv1.EndpointSlice) bool {
	return len(s.OwnerReferences) > 0 && !slices.ContainsFunc(s.OwnerReferences, func(r metav1.OwnerReference) bool { return p.owners[r.UID] })
}

func (c *clusters) describe(t *testing.T, of *cluster) string {
	t.Helper()
	found, err := snapshot(t.Context(), of.client)
	if err != nil {
		t.Fatal(err)
	}
	return found.describe(c.perSlice == largeSlices)
}
