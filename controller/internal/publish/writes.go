package publish

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

// Reasons of Events on Endpoints objects, as upstream names them.
const (
	reasonInvalidAddress = "InvalidIPAddress"
	reasonTooMany        = "TooManyAddressesToMirror"
)

// syncObject brings the Endpoints object of a Service up to date, or removes it with the Service.
func (t *term) syncObject(ctx context.Context, key types.NamespacedName) error {
	current, exists := t.cfg.Reader.Endpoints(key)
	if exists && isServers(current) {
		return nil
	}
	svc, ok := t.cfg.Reader.Service(key)
	if !ok {
		t.objectTriggers.forget(key)
		t.objects.forget(key)
		if exists && t.goesWithService(key, current) {
			if err := t.removeObject(ctx, current); err != nil {
				return err
			}
		}
		t.claimed.remove(key)
		return nil
	}
	t.claimed.add(key)
	if !endpoints.HasSelector(svc) || t.rivals.contested(key, time.Now()) {
		return nil
	}
	if exists && t.objects.is(key, current.ResourceVersion) {
		return errStale
	}
	pods := t.pods(svc)
	if !exists {
		current = nil
	}
	wanted := object(svc, pods, current, t.objectTriggers.next(svc, pods))
	if wanted != nil {
		if err := t.writeObject(ctx, current, wanted); err != nil {
			return err
		}
	}
	t.objectTriggers.written(key)
	return nil
}

// goesWithService reports whether an Endpoints object without a Service is to be removed: one that we wrote, or one of a
// Service that has been. Somebody may write it before the Service: then there has been none. A leader election record is
// not ours to delete, unless we made it a Service's.
func (t *term) goesWithService(key types.NamespacedName, e *corev1.Endpoints) bool {
	return writtenHere(e) || t.claimed.has(key) && !isForeign(e)
}

// writtenHere reports an object that we wrote for a Service with a selector.
func writtenHere(e *corev1.Endpoints) bool {
	return e.Labels[LabelEndpointsManagedBy] == ObjectController
}

func (t *term) removeObject(ctx context.Context, e *corev1.Endpoints) error {
	err := t.cfg.Client.CoreV1().Endpoints(e.Namespace).Delete(ctx, e.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(e.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Endpoints: %w", err)
	}
	return nil
}

// writeObject creates or updates. A namespace that terminates refuses new objects, and is left in peace.
func (t *term) writeObject(ctx context.Context, current, wanted *corev1.Endpoints) error {
	client := t.cfg.Client.CoreV1().Endpoints(wanted.Namespace)
	if current == nil {
		_, err := client.Create(ctx, wanted, metav1.CreateOptions{})
		if err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return fmt.Errorf("create Endpoints: %w", err)
		}
		return nil
	}
	updated, err := client.Update(ctx, wanted, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("update Endpoints: %w", err)
	}
	if updated.ResourceVersion != current.ResourceVersion {
		t.objects.set(types.NamespacedName{Namespace: wanted.Namespace, Name: wanted.Name}, current.ResourceVersion)
	}
	return nil
}

// syncMirror brings the slices that mirror an Endpoints object up to date (SEMANTICS 1.10). There are none without the
// object, without the Service, or with a selector.
func (t *term) syncMirror(ctx context.Context, key types.NamespacedName) error {
	ours, theirs := managedBy(t.cfg.Reader.Slices(key), MirrorController, upstreamMirrorController)
	e, exists := t.cfg.Reader.Endpoints(key)
	svc, hasService := t.cfg.Reader.Service(key)
	if !exists || !hasService || len(svc.Spec.Selector) > 0 || skipsMirror(e) {
		t.mirrors.DeleteService(key.Namespace, key.Name)
		return t.remove(ctx, append(ours, theirs...), t.mirrors)
	}
	if e.DeletionTimestamp != nil || t.rivals.contested(mirrorKey(key), time.Now()) {
		return nil
	}
	if t.mirrors.StaleSlices(svc, append(ours[:len(ours):len(ours)], theirs...)) {
		return errStale
	}
	if len(theirs) > 0 {
		if !t.mayTake(mirrorKey(key), theirs) {
			t.queue.AddAfter(task{kindMirror, key}, rivalPause)
			return t.concede(ctx, svc, ours)
		}
		taken, err := t.takeOver(ctx, theirs, takeover{MirrorController, t.mirrors})
		if err != nil {
			return err
		}
		ours = append(ours, taken...)
	}
	wanted, invalid, excess := mirrors(e)
	t.reportMirror(e, invalid, excess)
	return t.write(ctx, mirrorSteps(ours, wanted))
}

// mirrorKey keeps takeovers of mirrored slices apart from those of slices made from Pods.
func mirrorKey(key types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "/mirror"}
}

func skipsMirror(e *corev1.Endpoints) bool {
	return isForeign(e) || e.Labels[discoveryv1.LabelSkipMirror] == "true"
}

func (t *term) reportMirror(e *corev1.Endpoints, invalid, excess int) {
	if invalid > 0 {
		t.cfg.Events.Object(e, reasonInvalidAddress, fmt.Sprintf("skipped %d addresses that are no IP addresses when mirroring to EndpointSlices", invalid))
	}
	if excess > 0 {
		t.cfg.Events.Object(e, reasonTooMany, fmt.Sprintf("at most %d addresses of a subset are mirrored to EndpointSlices: %d were skipped", maxMirrored, excess))
	}
}

// write makes slices: first those that add, then those that change, then those that take away.
func (t *term) write(ctx context.Context, st steps) error {
	for _, s := range st.create {
		created, err := t.cfg.Client.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return nil
		case err != nil:
			return fmt.Errorf("create EndpointSlice: %w", err)
		}
		t.mirrors.Update(created)
	}
	for _, s := range st.update {
		updated, err := t.cfg.Client.DiscoveryV1().EndpointSlices(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("update EndpointSlice %s: %w", s.Name, err)
		}
		t.mirrors.Update(updated)
	}
	return t.remove(ctx, st.remove, t.mirrors)
}
