package publish

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Service's slices are taken over from another controller this often within rivalPause before that controller is held
// to be alive: once for what it left behind, once for what it may have written while it stopped.
const (
	maxTakeovers = 2
	rivalPause   = 10 * time.Minute
)

// rivals remembers from which Services slices of another endpoint controller had to be taken over, to tell one that left
// slices behind from one that runs (SEMANTICS 1.13). With the latter, Fairlead removes its own slices of the Service, so
// that stale ones do not count, and leaves the Service alone for rivalPause. Safe for concurrent use.
type rivals struct {
	mu       sync.Mutex // guards services
	services map[types.NamespacedName]rivalry
}

type rivalry struct {
	takeovers int
	// contested is when the other controller was found to run; zero before.
	contested time.Time
	// last is when slices were taken over last.
	last time.Time
}

func newRivals() *rivals { return &rivals{services: map[types.NamespacedName]rivalry{}} }

// contested reports whether a Service is left to the other controller, now.
func (r *rivals) contested(key types.NamespacedName, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.services[key]
	if ok && !s.contested.IsZero() && now.Sub(s.contested) >= rivalPause {
		delete(r.services, key)
		return false
	}
	return ok && !s.contested.IsZero()
}

// found says that slices of the other controller are there (again), and reports whether to take them over; otherwise the
// Service is contested from now on.
func (r *rivals) found(key types.NamespacedName, now time.Time) (takeOver bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.services[key]
	if now.Sub(s.last) >= rivalPause {
		s = rivalry{}
	}
	s.last = now
	if s.takeovers++; s.takeovers > maxTakeovers {
		s.contested = now
	}
	r.services[key] = s
	return s.contested.IsZero()
}

// forget drops a Service that is gone.
func (r *rivals) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.services, key)
}

// len is how many Services are contested.
func (r *rivals) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.services {
		if !s.contested.IsZero() {
			n++
		}
	}
	return n
}
