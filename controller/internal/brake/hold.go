package brake

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

// window is the time in which the whole allowance comes back.
const window = 30 * time.Second

// allowance is how much may go at once, of one kind of thing: a bucket that what goes empties, and time and additions
// fill. The zero value allows nothing before the first refill.
type allowance struct {
	left float64
	at   time.Time
}

// refill brings the allowance to a moment, at which there are total things, of which share or at least floor may go.
func (a *allowance) refill(l Limits, total int, now time.Time) {
	most := l.of(total)
	if a.at.IsZero() {
		a.left = most
	}
	a.left = min(most, a.left+most*now.Sub(a.at).Seconds()/window.Seconds())
	a.at = now
}

// Limits say what may go at once without a question.
type Limits struct {
	// Share of all (0 to 1); 1 switches the brake off.
	Share float64
	// Floor is a number that may always go: small clusters change by large shares.
	Floor int
}

func (l Limits) of(total int) float64 { return max(float64(l.Floor), l.Share*float64(total)) }

// usable counts the endpoints that take new connections.
func usable(eps []endpoints.Endpoint) int {
	n := 0
	for i := range eps {
		if eps[i].Ready {
			n++
		}
	}
	return n
}

// lost returns the endpoints that took new connections before, and do not now: gone, or not ready, or at other ports. Both
// lists are sorted.
func lost(before, now []endpoints.Endpoint) []endpoints.Endpoint {
	var gone []endpoints.Endpoint
	next := 0
	for i := range before {
		for next < len(now) && now[next].Addr.Less(before[i].Addr) {
			next++
		}
		if before[i].Ready && !beginsWith(now[next:], &before[i]) {
			gone = append(gone, before[i])
		}
	}
	return gone
}

// beginsWith reports whether one of the first endpoints of a list, those at the address of e, takes new connections at the
// same ports.
func beginsWith(list []endpoints.Endpoint, e *endpoints.Endpoint) bool {
	for i := 0; i < len(list) && list[i].Addr == e.Addr; i++ {
		if list[i].Ready && slices.Equal(list[i].Ports, e.Ports) {
			return true
		}
	}
	return false
}

// sorted returns endpoints in their order; the list itself, if it is in order.
func sorted(eps []endpoints.Endpoint) []endpoints.Endpoint {
	if slices.IsSortedFunc(eps, endpoints.Compare) {
		return eps
	}
	return slices.SortedFunc(slices.Values(eps), endpoints.Compare)
}
