package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// endpointsStep makes, changes or deletes the Endpoints of a Service without a selector, or of one that does not exist.
func (w *world) endpointsStep() (step, bool) {
	name := fmt.Sprintf("s%d", w.rng.IntN(worldServices))
	if kind, exists := w.services[name]; w.touched[name] || exists && kind.selects {
		return step{}, false
	}
	w.touched[name] = true
	if w.objects[name] && w.one(6) {
		delete(w.objects, name)
		return w.does("delete Endpoints "+name, func(ctx context.Context, c kubernetes.Interface) error {
			return gone(c.CoreV1().Endpoints(w.name).Delete(ctx, name, metav1.DeleteOptions{}))
		}), true
	}
	w.objects[name] = true
	wanted := w.newEndpoints(name)
	return w.does("write Endpoints "+name, func(ctx context.Context, c kubernetes.Interface) error {
		client := c.CoreV1().Endpoints(w.name)
		current, err := client.Get(ctx, name, metav1.GetOptions{})
		if gone(err) != nil {
			return err
		}
		if err != nil {
			_, err = client.Create(ctx, wanted.DeepCopy(), metav1.CreateOptions{})
			return err
		}
		current.Labels, current.Annotations, current.Subsets = wanted.Labels, wanted.Annotations, wanted.DeepCopy().Subsets
		_, err = client.Update(ctx, current, metav1.UpdateOptions{})
		return err
	}), true
}

func (w *world) newEndpoints(name string) *corev1.Endpoints {
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"team": pick(w.rng, []string{"a", "b"})},
		Annotations: map[string]string{
			"note": pick(w.rng, []string{"one", "two"}), corev1.LastAppliedConfigAnnotation: "{}",
			corev1.EndpointsLastChangeTriggerTime: "2026-01-01T00:00:00Z",
		},
	}}
	if w.one(4) {
		e.Labels[discoveryv1.LabelSkipMirror] = pick(w.rng, []string{"true", "true", "false"})
	}
	if w.one(4) {
		e.Labels[discoveryv1.LabelServiceName] = "other"
	}
	if w.one(10) {
		e.Annotations[resourcelock.LeaderElectionRecordAnnotationKey] = "{}"
	}
	for range w.rng.IntN(4) {
		e.Subsets = append(e.Subsets, w.newSubset())
	}
	// Upstream does not see that two subsets have the same port if it has an appProtocol, see upstream_differences_test.go.
	if len(e.Subsets) > 0 && len(e.Subsets[0].Ports) > 1 {
		e.Subsets[0].Ports[1].AppProtocol = ptr.To("kubernetes.io/ws")
	}
	return e
}

func (w *world) newSubset() corev1.EndpointSubset {
	subset := corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{w.newAddress()}}
	for range w.rng.IntN(4) {
		if w.one(3) {
			subset.NotReadyAddresses = append(subset.NotReadyAddresses, w.newAddress())
		} else {
			subset.Addresses = append(subset.Addresses, w.newAddress())
		}
	}
	if w.one(5) {
		return subset // without ports
	}
	subset.Ports = []corev1.EndpointPort{
		{Name: "http", Port: 8080},
		{Name: "web", Port: 8081},
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
	}[:1+w.rng.IntN(3)]
	return subset
}

// newAddress is one of a few, so that some are in two subsets, ready in one and not in the other.
func (w *world) newAddress() corev1.EndpointAddress {
	i := w.rng.IntN(6)
	address := corev1.EndpointAddress{IP: fmt.Sprintf("198.51.100.%d", i)}
	if w.one(3) {
		address.IP = fmt.Sprintf("2001:db8:1::%d", i)
	}
	// What an address says goes with the address: two that differ otherwise would be one of them by chance.
	if i == 1 {
		address.NodeName = ptr.To("n1")
	}
	if i == 2 {
		address.Hostname = "two"
	}
	if i == 3 {
		address.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: w.name, Name: "elsewhere", UID: "3"}
	}
	return address
}

// foreignSlice writes, or with luck deletes, a slice by an author of its own, which no controller may touch.
func (w *world) foreignSlice() step {
	service := fmt.Sprintf("s%d", w.rng.IntN(worldServices))
	name := "foreign-" + service
	if w.one(3) {
		return w.does("delete EndpointSlice "+name, func(ctx context.Context, c kubernetes.Interface) error {
			return gone(c.DiscoveryV1().EndpointSlices(w.name).Delete(ctx, name, metav1.DeleteOptions{}))
		})
	}
	wanted := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "somebody"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("198.51.100.%d", 50+w.rng.IntN(3))}}},
	}
	return w.does("write EndpointSlice "+name, func(ctx context.Context, c kubernetes.Interface) error {
		client := c.DiscoveryV1().EndpointSlices(w.name)
		current, err := client.Get(ctx, name, metav1.GetOptions{})
		if gone(err) != nil {
			return err
		}
		if err != nil {
			_, err = client.Create(ctx, wanted.DeepCopy(), metav1.CreateOptions{})
			return err
		}
		current.Endpoints = wanted.Endpoints
		_, err = client.Update(ctx, current, metav1.UpdateOptions{})
		return err
	})
}

// vandalism deletes or empties what the controllers have written for a Service.
func (w *world) vandalism() (step, bool) {
	name, ok := w.anyService(func(serviceKind) bool { return true })
	if !ok {
		return step{}, false
	}
	w.touched[name] = true
	selector := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name}
	switch w.rng.IntN(3) {
	case 0:
		delete(w.objects, name)
		return w.does("vandals delete Endpoints "+name, func(ctx context.Context, c kubernetes.Interface) error {
			return gone(c.CoreV1().Endpoints(w.name).Delete(ctx, name, metav1.DeleteOptions{}))
		}), true
	case 1:
		return w.does("vandals delete slices of "+name, func(ctx context.Context, c kubernetes.Interface) error {
			return c.DiscoveryV1().EndpointSlices(w.name).DeleteCollection(ctx, metav1.DeleteOptions{}, selector)
		}), true
	default:
		return w.does("vandals empty slices of "+name, func(ctx context.Context, c kubernetes.Interface) error {
			client := c.DiscoveryV1().EndpointSlices(w.name)
			return retry.RetryOnConflict(retry.DefaultRetry, func() error {
				list, err := client.List(ctx, selector)
				if err != nil {
					return err
				}
				for i := range list.Items {
					list.Items[i].Endpoints = nil
					if _, err := client.Update(ctx, &list.Items[i], metav1.UpdateOptions{}); gone(err) != nil {
						return err
					}
				}
				return nil
			})
		}), true
	}
}
