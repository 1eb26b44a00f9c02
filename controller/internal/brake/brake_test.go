package brake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/controller/internal/kube"
	"github.com/fairlead/fairlead/proto/fwd"
)

// next is what is behind the brake.
type next struct {
	services map[string][]string
	told     []string // Services of the last round
}

func (n *next) SetService(svc *corev1.Service, eps []endpoints.Endpoint) {
	list := []string{}
	for _, e := range eps {
		if e.Ready {
			list = append(list, e.Addr.String())
		}
	}
	n.services[svc.Name] = list
}
func (n *next) DeleteService(_, name string) { delete(n.services, name) }
func (n *next) SetNode(*corev1.Node)         {}
func (n *next) DeleteNode(string)            {}
func (n *next) Commit(_ context.Context, r kube.Round) {
	n.told = nil
	for _, key := range r.Services {
		n.told = append(n.told, key.Name)
	}
}

// world is a cluster as the Feed sees it: ready endpoints by Service, by their last byte.
type world map[string][]int

func list(numbers []int) []endpoints.Endpoint {
	var eps []endpoints.Endpoint
	for _, n := range numbers {
		eps = append(eps, endpoints.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), Ready: true, Serving: true, Ports: []endpoints.Port{{Protocol: fwd.TCP, Port: 80}},
		})
	}
	return eps
}

func to(n int) []int {
	var all []int
	for i := range n {
		all = append(all, i)
	}
	return all
}

type test struct {
	*testing.T
	*Brake
	next *next
	// off names a Service that has opted out.
	off   string
	again chan []types.NamespacedName
	truth world // what a fresh list gives; nil fails
	heldE int
	heldS int
}

func newTest(t *testing.T, l Limits) *test {
	x := &test{T: t, next: &next{services: map[string][]string{}}, again: make(chan []types.NamespacedName, 100)}
	x.Brake = New(Config{
		Next: x.next, Limits: l, Logger: slog.New(slog.DiscardHandler),
		Fresh: func(context.Context) (Lookup, error) {
			if x.truth == nil {
				return nil, errors.New("nobody answers")
			}
			return x.lookup, nil
		},
		Again: func(keys ...types.NamespacedName) { x.again <- keys },
		Held:  func(e, s int) { x.heldE, x.heldS = e, s },
	})
	return x
}

func (x *test) lookup(key types.NamespacedName) ([]endpoints.Endpoint, bool) {
	numbers, ok := x.truth[key.Name]
	return list(numbers), ok
}

// round says what some Services are now; a nil list is a Service that is gone.
func (x *test) round(w world) {
	var keys []types.NamespacedName
	for _, name := range slices.Sorted(maps.Keys(w)) {
		keys = append(keys, types.NamespacedName{Namespace: "ns", Name: name})
		if w[name] == nil {
			x.DeleteService("ns", name)
			continue
		}
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		if name == x.off {
			svc.Annotations = map[string]string{Annotation: OptOut}
		}
		x.SetService(svc, list(w[name]))
	}
	x.Commit(x.Context(), kube.Round{Services: keys})
}

// confirm makes a fresh list, and what the Feed would do then.
func (x *test) confirm(truth, feed world) {
	x.Helper()
	x.truth = truth
	x.mu.Lock()
	x.fresh = x.lookup
	waiting := x.waiting
	x.mu.Unlock()
	if len(waiting) == 0 {
		x.Fatal("nothing waits to be confirmed")
	}
	again := world{}
	for _, key := range waiting {
		again[key.Name] = feed[key.Name]
	}
	x.round(again)
}

func (x *test) has(want map[string]int) {
	x.Helper()
	got := map[string]int{}
	for name, eps := range x.next.services {
		got[name] = len(eps)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.Errorf("endpoints behind the brake (-want +got):\n%s", diff)
	}
}

// limits of the tests: 20 %, or 5.
func limits() Limits { return Limits{Share: 0.2, Floor: 5} }

func TestMassRemovalWaits(t *testing.T) {
	x := newTest(t, limits())
	x.round(world{"a": to(50), "b": to(50), "c": to(2)})
	x.round(world{"a": to(40)})
	x.has(map[string]int{"a": 40, "b": 50, "c": 2}) // 10 of 102 may go
	x.round(world{"a": {}, "b": to(10), "c": to(3)})
	x.has(map[string]int{"a": 40, "b": 50, "c": 3})
	if want := []string{"c"}; !slices.Equal(x.next.told, want) || x.heldE != 80 || x.heldS != 0 {
		t.Errorf("told %q, want %q; held %d and %d, want 80 and 0", x.next.told, want, x.heldE, x.heldS)
	}
	x.round(world{"b": append(to(10), 900)}) // what is new is not held
	x.has(map[string]int{"a": 40, "b": 51, "c": 3})
	x.confirm(world{"a": to(25), "b": append(to(10), 900), "c": to(3)}, world{"a": {}, "b": append(to(10), 900)})
	x.has(map[string]int{"a": 25, "b": 11, "c": 3}) // those that are there after all stay
	x.confirm(world{"a": {}, "b": append(to(10), 900)}, world{"a": {}})
	x.has(map[string]int{"a": 0, "b": 11, "c": 3})
	if x.heldE != 0 || len(x.held) != 0 || !slices.Equal(x.next.told, []string{"a"}) {
		t.Errorf("still held: %d in %v; told %q", x.heldE, x.held, x.next.told)
	}
}

// TestServicesToo: Services that go at once stay, whole, until that is confirmed.
func TestServicesToo(t *testing.T) {
	x := newTest(t, limits())
	all, none := world{}, world{}
	for i := range 10 {
		name := fmt.Sprint("s", i)
		all[name], none[name] = to(1), nil
	}
	x.round(all)
	x.round(none)
	if len(x.next.services) != 10 || x.heldS != 10 || x.heldE != 10 {
		t.Errorf("%d Services, held %d and %d endpoints", len(x.next.services), x.heldS, x.heldE)
	}
	x.confirm(world{"s3": to(1)}, none)
	x.has(map[string]int{"s3": 1})
	x.round(world{"s3": to(1)}) // the cache sees it again
	if x.heldS+x.heldE != 0 {
		t.Errorf("held %d Services and %d endpoints", x.heldS, x.heldE)
	}
}

// TestHeldIsToldApart: a Service that goes while its endpoints are held is counted, though no more waits than before.
func TestHeldIsToldApart(t *testing.T) {
	x := newTest(t, limits())
	x.round(world{"a": to(50), "b": to(50)})
	x.round(world{"a": {}})
	if x.heldE != 50 || x.heldS != 0 {
		t.Fatalf("held %d endpoints and %d Services, want 50 and 0", x.heldE, x.heldS)
	}
	x.round(world{"a": nil})
	if x.heldE != 50 || x.heldS != 1 {
		t.Errorf("held %d endpoints and %d Services, want 50 and 1", x.heldE, x.heldS)
	}
	x.round(world{"a": {}}) // it is back
	if x.heldE != 50 || x.heldS != 0 {
		t.Errorf("held %d endpoints and %d Services, want 50 and 0", x.heldE, x.heldS)
	}
}

// TestManySmallRounds: a removal that comes one by one is as large as one that comes at once.
func TestManySmallRounds(t *testing.T) {
	x := newTest(t, limits())
	x.round(world{"a": to(100)})
	for n := 99; n >= 0; n-- {
		x.round(world{"a": to(n)})
	}
	if got := len(x.next.services["a"]); got < 79 || got > 81 {
		t.Errorf("%d endpoints left, want 80", got)
	}
}

// TestRollingUpdate: what comes makes room for what goes, however often.
func TestRollingUpdate(t *testing.T) {
	x := newTest(t, limits())
	x.round(world{"a": to(100)})
	for i := range 1000 {
		var up []int
		for n := range 110 {
			up = append(up, i*10+n)
		}
		x.round(world{"a": up})
		x.round(world{"a": up[10:]})
	}
	if x.heldE > 0 || len(x.next.services["a"]) != 100 {
		t.Errorf("%d held", x.heldE)
	}
}

func TestSwitches(t *testing.T) {
	off := newTest(t, Limits{Share: 1})
	off.round(world{"a": to(100), "b": to(5)})
	off.round(world{"a": nil, "b": nil})
	off.has(map[string]int{})
	one := newTest(t, limits())
	one.off = "a"
	one.round(world{"a": to(100), "b": to(100)})
	one.round(world{"a": {}, "b": {}})
	one.has(map[string]int{"a": 0, "b": 100})
	small := newTest(t, limits())
	small.round(world{"a": to(5)})
	small.round(world{"a": nil})
	small.has(map[string]int{})
}

// TestTimeConfirmsNothing: what is held stays so without a list, however often it is looked at.
func TestTimeConfirmsNothing(t *testing.T) {
	x := newTest(t, limits())
	x.round(world{"a": to(50), "b": to(50)})
	x.round(world{"a": {}, "b": {}})
	for range 100 {
		x.eps.at = x.eps.at.Add(-time.Hour)
		x.round(world{"a": {}})
	}
	x.has(map[string]int{"a": 50, "b": 50})
}

// TestRun asks until the API server answers, and then has the Services looked at again.
func TestRun(t *testing.T) {
	x := newTest(t, limits())
	x.round(world{"a": to(50)})
	x.round(world{"a": {}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	x.truth = world{"a": {}}
	go func() {
		defer close(ended)
		x.Brake.Run(ctx)
	}()
	select {
	case keys := <-x.again:
		if len(keys) != 1 || keys[0].Name != "a" {
			t.Errorf("again %v", keys)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no fresh list")
	}
	x.round(world{"a": {}})
	x.has(map[string]int{"a": 0})
	cancel()
	<-ended
}

// TestEndsRight: after any history, with lists that tell the truth, everybody behind the brake has what there is; and
// nothing that there is was ever missing.
func TestEndsRight(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		x := newTest(t, Limits{Share: 0.3, Floor: 2})
		now := world{}
		for range 60 {
			change := world{}
			for range 1 + rng.IntN(4) {
				name := strings.Repeat("s", 1+rng.IntN(4))
				switch rng.IntN(4) {
				case 0:
					change[name] = nil
					delete(now, name)
				default:
					change[name] = to(rng.IntN(12))
					if change[name] == nil {
						change[name] = []int{}
					}
					now[name] = change[name]
				}
			}
			x.round(change)
			for name, eps := range now {
				if len(x.next.services[name]) < len(eps) {
					t.Fatalf("Service %s has %d endpoints, there are %d", name, len(x.next.services[name]), len(eps))
				}
			}
			if len(x.waiting) > 0 && rng.IntN(3) == 0 {
				x.confirm(now, now)
			}
		}
		if len(x.waiting) > 0 {
			x.confirm(now, now)
		}
		want := map[string]int{}
		total := 0
		for name, eps := range now {
			want[name] = len(eps)
			total += len(eps)
		}
		x.has(want)
		if x.total != total || x.heldEndpoints != 0 {
			t.Fatalf("counts %d endpoints, %d held; there are %d", x.total, x.heldEndpoints, total)
		}
	}
}
