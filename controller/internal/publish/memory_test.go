package publish

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

func TestRivals(t *testing.T) {
	key, start := types.NamespacedName{Namespace: "ns", Name: "w"}, time.Unix(1000, 0)
	r := newRivals()
	for i := range maxTakeovers {
		if !r.found(key, start) || r.contested(key, start) {
			t.Fatalf("takeover %d is refused", i+1)
		}
	}
	if r.found(key, start) || !r.contested(key, start) || r.len() != 1 {
		t.Fatal("one takeover too many is allowed")
	}
	if !r.contested(key, start.Add(rivalPause-1)) || r.contested(types.NamespacedName{Name: "other"}, start) {
		t.Error("contested is wrong before the pause is over")
	}
	later := start.Add(rivalPause)
	if r.contested(key, later) || !r.found(key, later) || r.len() != 0 {
		t.Error("after the pause it is not tried again")
	}
	r.found(key, later)
	if !r.found(key, later.Add(rivalPause)) {
		t.Error("takeovers long ago still count")
	}
	r.forget(key)
	if len(r.services) != 0 {
		t.Error("forget remembers")
	}
}

// TestTriggers: the oldest cause since the last write, also when the write failed.
func TestTriggers(t *testing.T) {
	svc := testService("w")
	key := types.NamespacedName{Namespace: "ns", Name: "w"}
	svc.CreationTimestamp = metav1.Unix(100, 0)
	at := func(seconds int64) []*corev1.Pod {
		return []*corev1.Pod{testPod("w", 0, func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.Unix(seconds, 0) })}
	}
	tr := newTriggers()
	if got := tr.next(svc, at(50)); got.Unix() != 100 {
		t.Errorf("a new Service: %v, want its creation", got.Unix())
	}
	tr.written(key)
	if got := tr.next(svc, at(200)); got.Unix() != 200 {
		t.Errorf("a Pod changed: %v, want 200", got.Unix())
	}
	if got := tr.next(svc, at(300)); got.Unix() != 200 {
		t.Errorf("the first write failed: %v, want 200", got.Unix())
	}
	if got := tr.next(svc, at(300)); got.Unix() != 200 {
		t.Errorf("a repetition: %v, want 200", got.Unix())
	}
	tr.written(key)
	if got := tr.next(svc, at(300)); !got.IsZero() {
		t.Errorf("nothing changed: %v, want none", got)
	}
	tr.forget(key)
	if len(tr.pending) != 0 || len(tr.tracker.ServiceStates) != 0 {
		t.Error("forget remembers")
	}
}

func TestComplaintsAreFew(t *testing.T) {
	var c complaints
	now := time.Unix(1000, 0)
	said := 0
	for range 100 {
		if _, ok := c.due(now); ok {
			said++
		}
	}
	unsaid, ok := c.due(now.Add(complaintPause))
	if said != 1 || !ok || unsaid.Value.Int64() != 99 {
		t.Errorf("said %d of 100, then %t with %v", said, ok, unsaid)
	}
}

// TestEventsWaitForLeadership: what is said before is written then, and nothing without.
func TestEventsWaitForLeadership(t *testing.T) {
	client := fake.NewClientset()
	e, err := NewEvents(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	svc := testService("w")
	e.Service(svc, "Early", strings.Repeat("x", 2000))
	list := func() int {
		l, err := client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range l.Items {
			if event.Regarding.UID != svc.UID || event.Type != corev1.EventTypeWarning || len(event.Note) > maxNote {
				t.Errorf("event %v", event)
			}
		}
		return len(l.Items)
	}
	if n := list(); n != 0 {
		t.Errorf("%d Events without leadership", n)
	}
	e.Lead(true)
	e.Service(svc, "Late", "said")
	l := &leader{T: t, client: client}
	l.until("both Events", func() bool { return list() == 2 })
	e.Lead(false)
	for range maxUnsaid + 10 {
		e.Service(svc, "More", "unsaid")
	}
	if len(e.unsaid) != maxUnsaid {
		t.Errorf("%d unsaid Events are kept, want %d", len(e.unsaid), maxUnsaid)
	}
}
