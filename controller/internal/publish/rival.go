package publish

import (
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Slices of another controller that come up during a term are taken over this often within rivalPause before that
// controller is held to be alive for good: it may have written while it stopped.
const (
	maxTakeovers = 1
	rivalPause   = 10 * time.Minute
)

// rivals remembers from which Services slices of another endpoint controller had to be taken over, to tell one that left
// slices behind from one that runs (SEMANTICS 1.13). With the latter, Fairlead removes its own slices of the Service, so
// that stale ones do not count, and leaves the Service alone for rivalPause. Safe for concurrent use.
type rivals struct {
	mu       sync.Mutex // guards what follows
	services map[types.NamespacedName]rivalry
	// behind are slices that were there before this term.
	behind map[types.UID]struct{}
}

type rivalry struct {
	takeovers int
	// contested is when the other controller was found to run; zero before.
	contested time.Time
	// last is when slices were taken over last.
	last time.Time
}

func newRivals() *rivals {
	return &rivals{services: map[types.NamespacedName]rivalry{}, behind: map[types.UID]struct{}{}}
}

// left notes a slice that was there before this term.
func (r *rivals) left(s *discoveryv1.EndpointSlice) {
	switch s.Labels[discoveryv1.LabelManagedBy] {
	case upstreamSliceController, upstreamMirrorController:
	default:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.behind[s.UID] = struct{}{}
}

// allLeft reports whether all slices were there before this term and have not been taken over since.
func (r *rivals) allLeft(slices []*discoveryv1.EndpointSlice) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := true
	for _, s := range slices {
		_, left := r.behind[s.UID]
		all = all && left
	}
	return all
}

// taken notes that slices are ours now.
func (r *rivals) taken(slices []*discoveryv1.EndpointSlice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slices {
		delete(r.behind, s.UID)
	}
}

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
