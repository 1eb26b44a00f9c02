package publish

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	endpointsliceutil "k8s.io/endpointslice/util"
)

// triggers tells the annotation endpoints.kubernetes.io/last-change-trigger-time: the oldest cause since the last write.
// The library's tracker forgets a cause once asked, though the write may fail; triggers remembers it until then. Safe for
// concurrent use for different Services.
type triggers struct {
	tracker *endpointsliceutil.TriggerTimeTracker

	mu      sync.Mutex // guards pending
	pending map[types.NamespacedName]time.Time
}

func newTriggers() *triggers {
	return &triggers{tracker: endpointsliceutil.NewTriggerTimeTracker(), pending: map[types.NamespacedName]time.Time{}}
}

// next returns the oldest cause that no write has carried; zero for none.
func (t *triggers) next(svc *corev1.Service, pods []*corev1.Pod) time.Time {
	key := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
	cause := t.tracker.ComputeEndpointLastChangeTriggerTime(svc.Namespace, svc, pods)
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.pending[key]; ok && (cause.IsZero() || old.Before(cause)) {
		cause = old
	}
	if !cause.IsZero() {
		t.pending[key] = cause
	}
	return cause
}

// written says that the last cause has been carried.
func (t *triggers) written(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pending, key)
}

// forget drops a Service that is gone.
func (t *triggers) forget(key types.NamespacedName) {
	t.tracker.DeleteService(key.Namespace, key.Name)
	t.written(key)
}
