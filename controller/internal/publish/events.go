package publish

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
)

const (
	reporter = "fairlead-controller"
	// action is what was being done when an Event came up; the API asks for one.
	action = "Forwarding"
	// maxNote is the longest text that the API takes, in bytes.
	maxNote = 1024
	// maxUnsaid is how many Events are kept for the time when this replica may write.
	maxUnsaid = 1000
)

// Events tells the owners of Services and Nodes what they should know, by Events of events.k8s.io, which the client merges
// into series. What is said without leadership is kept, up to a bound, and said with it. Safe for concurrent use.
type Events struct {
	recorder events.EventRecorder
	legacy   record.EventRecorder

	mu      sync.Mutex // guards what follows
	leading bool
	unsaid  []saying
}

type saying struct {
	regarding    *corev1.ObjectReference
	reason, note string
}

// NewEvents returns Events that write through a client until ctx ends. They write nothing before Lead.
func NewEvents(ctx context.Context, client kubernetes.Interface) (*Events, error) {
	b := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("start recording Events: %w", err)
	}
	context.AfterFunc(ctx, b.Shutdown)
	legacy := record.NewBroadcaster(record.WithContext(ctx))
	legacy.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return &Events{
		recorder: b.NewRecorder(scheme.Scheme, reporter),
		legacy:   legacy.NewRecorder(scheme.Scheme, corev1.EventSource{Component: reporter}),
	}, nil
}

// Lead says whether this replica may write from now on.
func (e *Events) Lead(leading bool) {
	e.mu.Lock()
	e.leading = leading
	var unsaid []saying
	if leading {
		unsaid, e.unsaid = e.unsaid, nil
	}
	e.mu.Unlock()
	for _, s := range unsaid {
		e.record(s)
	}
}

// Legacy returns a recorder for libraries that know only the old interface.
func (e *Events) Legacy() record.EventRecorder {
	return e.legacy
}

// Service warns the owner of a Service. reason is CamelCase, note one line.
func (e *Events) Service(svc *corev1.Service, reason, note string) {
	e.Warn(ServiceRef(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, svc.UID), reason, note)
}

// Object warns the owner of an Endpoints object.
func (e *Events) Object(o *corev1.Endpoints, reason, note string) {
	e.Warn(&corev1.ObjectReference{APIVersion: "v1", Kind: "Endpoints", Namespace: o.Namespace, Name: o.Name, UID: o.UID}, reason, note)
}

// ServiceRef names a Service as the subject of an Event.
func ServiceRef(key types.NamespacedName, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: key.Namespace, Name: key.Name, UID: uid}
}

// NodeRef names a Node as the subject of an Event. Events on Nodes carry the name as UID, as a kubelet's do, so that
// kubectl describe shows them together.
func NodeRef(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

// Warn records a warning on an object.
func (e *Events) Warn(regarding *corev1.ObjectReference, reason, note string) {
	// A note may quote what somebody wrote, which may end amid a character.
	s := saying{regarding: regarding, reason: reason, note: strings.ToValidUTF8(note[:min(len(note), maxNote)], "")}
	e.mu.Lock()
	leading := e.leading
	if !leading && len(e.unsaid) < maxUnsaid {
		e.unsaid = append(e.unsaid, s)
	}
	e.mu.Unlock()
	if leading {
		e.record(s)
	}
}

func (e *Events) record(s saying) {
	e.recorder.Eventf(runtime.Object(s.regarding), nil, corev1.EventTypeWarning, s.reason, action, "%s", s.note)
}
