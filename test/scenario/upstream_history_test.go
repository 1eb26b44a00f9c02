package scenario

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// step is one change that both clusters are given.
type step struct {
	what string
	do   func(context.Context, kubernetes.Interface) error
}

// world is a namespace, as far as it decides what can happen next.
type world struct {
	name  string
	index int
	rng   *rand.Rand
	// services are those that exist; pods likewise.
	services map[string]serviceKind
	pods     map[string]podKind
	// objects are Endpoints that the test made.
	objects map[string]bool
	// touched are the names of Services and Endpoints that this batch has changed.
	touched map[string]bool
	// ending: the namespace is being deleted, which takes for ever here.
	ending bool
}

const (
	worldServices = 6
	worldPods     = 9
)

func worldName(i int) string { return fmt.Sprintf("w%d", i) }

func newWorld(i int, rng *rand.Rand) *world {
	return &world{
		name: worldName(i), index: i, rng: rng,
		services: map[string]serviceKind{}, pods: map[string]podKind{}, objects: map[string]bool{}, touched: map[string]bool{},
	}
}

// batch returns the steps of a round: several that end in the same state in whatever order controllers see them, or a single
// one after which something stays as it is at this moment; not the latter with unsettled, when Nodes change as well.
func (w *world) batch(unsettled bool) []step {
	w.touched = map[string]bool{}
	if !unsettled && !w.ending && w.one(4) {
		if s, ok := w.last(); ok {
			return []step{s}
		}
	}
	var steps []step
	for range 6 {
		if s, ok := w.next(); ok {
			steps = append(steps, s)
		}
	}
	return steps
}

// last returns a step that makes the controllers stop to look after a Service.
func (w *world) last() (step, bool) {
	name, ok := w.anyService(func(k serviceKind) bool { return k.selects || w.one(3) })
	if !ok {
		return step{}, false
	}
	kind := w.services[name]
	switch n := w.rng.IntN(5); {
	case n < 2:
		delete(w.services, name)
		delete(w.objects, name)
		return w.does("delete Service "+name, func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().Services(w.name).Delete(ctx, name, metav1.DeleteOptions{})
		}), true
	case n < 4 && kind.selects && !kind.external:
		w.services[name] = serviceKind{headless: kind.headless}
		return w.updates(name, "drop selector", func(s *corev1.Service) { s.Spec.Selector = nil }), true
	case !kind.headless && !kind.external:
		kind.external = true
		w.services[name] = kind
		return w.updates(name, "become ExternalName", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
			s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = "", nil, nil, nil
			s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution = nil, nil
		}), true
	}
	return step{}, false
}

func (w *world) next() (step, bool) {
	if w.ending {
		return w.podStep()
	}
	switch n := w.rng.IntN(100); {
	case n < 12:
		return w.createService()
	case n < 27:
		return w.changeService()
	case n < 62:
		return w.podStep()
	case n < 80:
		return w.createPod()
	case n < 92:
		return w.endpointsStep()
	case n < 96:
		return w.foreignSlice(), true
	default:
		return w.vandalism()
	}
}

// terminate begins to delete the namespace.
func (w *world) terminate() step {
	w.ending = true
	return w.does("delete namespace", func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().Namespaces().Delete(ctx, w.name, metav1.DeleteOptions{})
	})
}

func (w *world) does(what string, do func(context.Context, kubernetes.Interface) error) step {
	return step{what: what, do: do}
}

// updates changes a Service.
func (w *world) updates(name, what string, change func(*corev1.Service)) step {
	return w.does(what+" of Service "+name, func(ctx context.Context, c kubernetes.Interface) error {
		s, err := c.CoreV1().Services(w.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(s)
		_, err = c.CoreV1().Services(w.name).Update(ctx, s, metav1.UpdateOptions{})
		return err
	})
}

func (w *world) anyService(ok func(serviceKind) bool) (string, bool) {
	return anyOf(w.rng, w.services, func(name string, k serviceKind) bool { return !w.touched[name] && ok(k) })
}

// anyOf draws one of the keys that will do.
func anyOf[V any](rng *rand.Rand, from map[string]V, ok func(string, V) bool) (string, bool) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if ok(name, from[name]) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", false
	}
	return pick(rng, names), true
}

// one is true once in n times.
func (w *world) one(n int) bool { return w.rng.IntN(n) == 0 }

// nodeWorld are the Nodes; n9 comes and goes, n3 and n4 change their zone.
type nodeWorld struct{ ninth bool }

func newNodeWorld() *nodeWorld { return &nodeWorld{} }

func (n *nodeWorld) initial() []*corev1.Node {
	return []*corev1.Node{newNode("n1", "a"), newNode("n2", "b"), newNode("n3", ""), newNode("n4", "b")}
}

func newNode(name, zone string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("4")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	setZone(node, zone)
	return node
}

func setZone(node *corev1.Node, zone string) {
	if zone == "" {
		delete(node.Labels, corev1.LabelTopologyZone)
		return
	}
	metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelTopologyZone, zone)
}

func (n *nodeWorld) step(rng *rand.Rand) step {
	if rng.IntN(2) == 0 {
		n.ninth = !n.ninth
		if n.ninth {
			return step{what: "create n9", do: func(ctx context.Context, c kubernetes.Interface) error {
				_, err := c.CoreV1().Nodes().Create(ctx, newNode("n9", "a"), metav1.CreateOptions{})
				return err
			}}
		}
		return step{what: "delete n9", do: func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().Nodes().Delete(ctx, "n9", metav1.DeleteOptions{})
		}}
	}
	name, zone := pick(rng, []string{"n3", "n4"}), pick(rng, []string{"", "a", "b", "c"})
	return step{what: "zone of " + name + " is " + zone, do: func(ctx context.Context, c kubernetes.Interface) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			node, err := c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			setZone(node, zone)
			_, err = c.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
			return err
		})
	}}
}

// gone takes an error that says that something is not there for success.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
