package publish

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// lag is how far EndpointSlices are behind the tables: since when Services have changes that agents were sent and no slice
// carries. Safe for concurrent use; one attempt at a Service is under way at most.
type lag struct {
	mu sync.Mutex // guards what follows
	// waiting are the oldest changes that wait for an attempt, trying those that the one under way carries.
	waiting, trying map[types.NamespacedName]time.Time
}

func newLag() *lag {
	return &lag{waiting: map[types.NamespacedName]time.Time{}, trying: map[types.NamespacedName]time.Time{}}
}

// changed notes a change that went into the tables at a time.
func (l *lag) changed(key types.NamespacedName, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.waiting[key]; !ok {
		l.waiting[key] = at
	}
}

// begin notes an attempt: what changes from now on, the next one carries.
func (l *lag) begin(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since, ok := l.waiting[key]; ok {
		l.trying[key] = since
		delete(l.waiting, key)
	}
}

// end notes what became of the attempt. After a success it returns since when the oldest change had waited, if there was one.
func (l *lag) end(key types.NamespacedName, success bool) (since time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, ok = l.trying[key]
	delete(l.trying, key)
	if ok && !success {
		l.waiting[key] = since // older than what came meanwhile
		return time.Time{}, false
	}
	return since, ok
}

// oldest is the age of the oldest change that no slice carries; 0 where there is none.
func (l *lag) oldest(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var age time.Duration
	for _, changes := range []map[types.NamespacedName]time.Time{l.waiting, l.trying} {
		for _, since := range changes {
			age = max(age, now.Sub(since))
		}
	}
	return age
}
