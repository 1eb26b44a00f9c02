package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	endpointsliceutil "k8s.io/endpointslice/util"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

// reasonRival is the reason of the Event on a Service whose slices another endpoint controller keeps writing.
const reasonRival = "SecondEndpointController"

// syncSlices brings the EndpointSlices of a Service up to date. Those of a Service that is gone are the garbage
// collector's; those of one without a selector belong to their author.
func (t *term) syncSlices(ctx context.Context, key types.NamespacedName) error {
	svc, ok := t.cfg.Reader.Service(key)
	if !ok {
		t.sliceTriggers.forget(key)
		t.reconciler.DeleteService(key.Namespace, key.Name)
		t.slices.DeleteService(key.Namespace, key.Name)
		t.rivals.forget(key)
		return nil
	}
	if !endpoints.HasSelector(svc) || t.rivals.contested(key, time.Now()) {
		return nil
	}
	ours, theirs := managedBy(t.cfg.Reader.Slices(key), SliceController, upstreamSliceController)
	if t.slices.StaleSlices(svc, append(ours[:len(ours):len(ours)], theirs...)) {
		return errStale
	}
	if len(theirs) > 0 {
		if !t.mayTake(key, theirs) {
			return t.concede(ctx, svc, ours)
		}
		taken, err := t.takeOver(ctx, theirs, takeover{SliceController, t.slices})
		if err != nil {
			return err
		}
		ours = append(ours, taken...)
	}
	pods := t.pods(svc)
	if err := t.reconciler.Reconcile(t.logger, svc, pods, ours, t.sliceTriggers.next(svc, pods)); err != nil {
		return fmt.Errorf("reconcile EndpointSlices: %w", err)
	}
	t.sliceTriggers.written(key)
	return nil
}

// takeover says by whom slices are taken over.
type takeover struct {
	manager string
	tracker *endpointsliceutil.EndpointSliceTracker
}

// takeOver makes another controller's slices ours by their label, with the endpoints they have: no moment without, none
// with two. One that has changed meanwhile is a conflict, and looked at again.
func (t *term) takeOver(ctx context.Context, slices []*discoveryv1.EndpointSlice, to takeover) ([]*discoveryv1.EndpointSlice, error) {
	taken := make([]*discoveryv1.EndpointSlice, 0, len(slices))
	for _, s := range slices {
		s = s.DeepCopy()
		s.Labels[discoveryv1.LabelManagedBy] = to.manager
		updated, err := t.cfg.Client.DiscoveryV1().EndpointSlices(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
		if err != nil {
			return nil, fmt.Errorf("take over EndpointSlice %s: %w", s.Name, err)
		}
		to.tracker.Update(updated)
		taken = append(taken, updated)
	}
	t.rivals.taken(taken)
	t.metrics.takenOver.Add(float64(len(taken)))
	return taken, nil
}

// mayTake reports whether to take over slices: those that were there when this term began always, others a few times.
// key tells slices of one Service from its mirrored ones.
func (t *term) mayTake(key types.NamespacedName, slices []*discoveryv1.EndpointSlice) bool {
	if t.rivals.allLeft(slices) {
		return true
	}
	t.complain(key, slices[0].Labels[discoveryv1.LabelManagedBy])
	return t.rivals.found(key, time.Now())
}

// complain says that another controller has written to a Service of ours.
func (t *term) complain(key types.NamespacedName, manager string) {
	t.metrics.foreign.Inc()
	if unsaid, ok := t.foreign.due(time.Now()); ok {
		t.cfg.Logger.Error("another endpoint controller is running: stop it (kube-controller-manager --controllers="+
			"*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller), or run this one with --endpoints=read",
			slog.String("service", key.String()), slog.String("manager", manager), unsaid)
	}
}

// concede leaves a Service to the other controller: our slices of it go, as nobody would keep them right.
func (t *term) concede(ctx context.Context, svc *corev1.Service, ours []*discoveryv1.EndpointSlice) error {
	key := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
	t.metrics.contested.Set(float64(t.rivals.len()))
	t.cfg.Logger.DebugContext(ctx, "leaving a Service to another endpoint controller", slog.String("service", key.String()), slog.Duration("pause", rivalPause))
	t.cfg.Events.Service(svc, reasonRival, "another endpoint controller keeps writing EndpointSlices: Fairlead stops writing for this Service")
	t.queue.AddAfter(task{kindSlices, key}, rivalPause)
	t.queue.AddAfter(task{kindObject, key}, rivalPause)
	return t.remove(ctx, ours, t.slices)
}

// remove deletes slices; one that is gone is no error.
func (t *term) remove(ctx context.Context, slices []*discoveryv1.EndpointSlice, tracker *endpointsliceutil.EndpointSliceTracker) error {
	var errs []error
	for _, s := range slices {
		err := t.cfg.Client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))})
		switch {
		case err == nil:
			tracker.ExpectDeletion(s)
		case !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("delete EndpointSlice %s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// parseKey reads namespace/name.
func parseKey(s string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
