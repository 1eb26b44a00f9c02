package scenario

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	controllerapp "github.com/fairlead/fairlead/controller/app"
	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/scenario/child"
)

// The nodes of the tests below, with a Pod each. Service pair0 has the Pods on the first two, pair1 those on the next two,
// and so on: where fewer nodes are lost than half, whole Services go with them.
const (
	fleet = 20
	pairs = fleet / 2
	// monitorGrace is how long kube-controller-manager waits for a node.
	monitorGrace = 10 * time.Second
)

// TestNodeLifecycle: kube-controller-manager's node lifecycle controller finds that nodes are silent, marks them unknown and
// their Pods unready. Of a tenth of the nodes that is believed, of 60 % and of all it is not: no Service loses an endpoint, at any
// moment. What a kubelet says is believed in all cases.
func TestNodeLifecycle(t *testing.T) {
	f := newFleet(t)
	f.beat(t)
	kubeconfig, err := f.api.Kubeconfig("lifecycle", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	manager, err := child.Start(child.Config{Name: "kube-controller-manager", Log: filepath.Join(t.TempDir(), "manager.log"), Argv: []string{
		f.api.Program("kube-controller-manager"), "--kubeconfig=" + kubeconfig, "--controllers=node-lifecycle-controller",
		"--leader-elect=false", "--secure-port=0", "--cert-dir=", "--flex-volume-plugin-dir=" + t.TempDir(),
		"--node-monitor-period=1s", fmt.Sprintf("--node-monitor-grace-period=%v", monitorGrace),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Kill)
	for _, lost := range []int{fleet / 10, fleet * 6 / 10, fleet} {
		t.Run(fmt.Sprintf("%d of %d nodes", lost, fleet), func(t *testing.T) {
			f.lose(t, lost)
			select {
			case <-manager.Done():
				t.Fatal(manager.Ended())
			default:
			}
		})
	}
}

// machines is a bed with a fleet of nodes, which this test is the kubelets of.
type machines struct {
	*bed
	mu    sync.Mutex // guards what follows
	alive int        // the nodes from this number down are silent
}

func newFleet(t *testing.T) *machines {
	t.Helper()
	b := newBed(t)
	if err := b.controller.end(); err != nil {
		t.Fatal(err)
	}
	f := &machines{bed: b}
	for _, name := range nodes() { // they have no kubelet
		if err := b.api.Client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range fleet {
		f.create(t, i)
	}
	for i := range pairs {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pair%d", i)},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"pair": fmt.Sprint(i)}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
		}
		if _, err := b.api.Client.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.controller = startController(t, b, streamPort, func(c *controllerapp.Config) { c.Brake = controllerapp.Defaults().Brake })
	return f
}

func nodeName(i int) string { return fmt.Sprintf("fleet%02d", i) }
func podName(i int) string  { return fmt.Sprintf("pod%02d", i) }

// create makes a node and its Pod, both ready.
func (f *machines) create(t *testing.T, i int) {
	t.Helper()
	core := f.api.Client.CoreV1()
	if _, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName(i), Labels: map[string]string{"pair": fmt.Sprint(i / 2)}},
		Spec:       corev1.PodSpec{NodeName: nodeName(i), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := core.Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.report(t, i, true)
}

// report writes what a kubelet says: the node is ready, and so is the Pod, or its container is not.
func (f *machines) report(t *testing.T, i int, ready bool) {
	t.Helper()
	core := f.api.Client.CoreV1()
	now := metav1.Now()
	again(t, func() error {
		node, err := core.Nodes().Get(t.Context(), nodeName(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}}
		_, err = core.Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		return err
	})
	again(t, func() error {
		pod, err := core.Pods(namespace).Get(t.Context(), podName(i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		ip := fmt.Sprintf("10.244.9.%d", i+1)
		status, reason := corev1.ConditionTrue, ""
		if !ready {
			status, reason = corev1.ConditionFalse, "ContainersNotReady"
		}
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status, Reason: reason}, {Type: corev1.ContainersReady, Status: status, Reason: reason},
		}}
		_, err = core.Pods(namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		return err
	})
}

// again does something until nobody else writes the same object meanwhile.
func again(t *testing.T, do func() error) {
	t.Helper()
	eventually(t, "write", func() error {
		err := do()
		if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		return err
	})
}

// beat renews the Leases of the nodes that are not silent, as kubelets do, until the test ends.
func (f *machines) beat(t *testing.T) {
	t.Helper()
	leases := f.api.Client.CoordinationV1().Leases("kube-node-lease")
	for i := range fleet {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(nodeName(i)), LeaseDurationSeconds: ptr.To(int32(40)), RenewTime: ptr.To(metav1.NowMicro())},
		}
		again(t, func() error { // the API server makes the namespace
			_, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
			if apierrors.IsNotFound(err) {
				return apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, err)
			}
			return err
		})
	}
	renew := func(ctx context.Context) {
		f.mu.Lock()
		from := f.alive
		f.mu.Unlock()
		for i := from; i < fleet; i++ {
			patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, metav1.NowMicro().UTC().Format(metav1.RFC3339Micro))
			_, _ = leases.Patch(ctx, nodeName(i), "application/merge-patch+json", patch, metav1.PatchOptions{}) // there is a next time
		}
	}
	var beating sync.WaitGroup
	beating.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			renew(t.Context())
			select {
			case <-t.Context().Done():
				return
			case <-ticker.C:
			}
		}
	})
	t.Cleanup(beating.Wait)
}

// silence has the first nodes, and no others, say nothing from now on.
func (f *machines) silence(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alive = n
}

// lose silences nodes and holds what becomes of Services.
func (f *machines) lose(t *testing.T, lost int) {
	believed := lost <= fleet/2
	f.silence(0)
	for i := range fleet {
		f.report(t, i, true)
	}
	all := map[string]int{}
	for i := range pairs {
		all[fmt.Sprintf("pair%d", i)] = 2
	}
	follower := followersOf(t, streamPort, nodeName(fleet-1))[nodeName(fleet-1)]
	f.reach(t, follower.Wait, all)

	ctx, cancel := context.WithCancel(t.Context())
	least := make(chan map[string]int, 1)
	go func() { least <- leastOf(ctx, follower.Wait) }()
	f.silence(lost)
	f.unknown(t, lost)
	last := fleet - 1
	f.report(t, last, false) // a kubelet speaks, if need be the first one that is back
	want := map[string]int{}
	for i := range pairs {
		want[fmt.Sprintf("pair%d", i)] = 2
		if believed && 2*i+1 < lost {
			want[fmt.Sprintf("pair%d", i)] = 0
		}
	}
	want[fmt.Sprintf("pair%d", pairs-1)] = 1
	f.reach(t, follower.Wait, want)
	cancel()
	for name, n := range <-least {
		if n < want[name] {
			t.Errorf("Service %s had %d endpoints for a moment, want %d at least", name, n, want[name])
		}
	}
}

// unknown waits until the node lifecycle controller has spoken of the first nodes and their Pods.
func (f *machines) unknown(t *testing.T, lost int) {
	t.Helper()
	begin := time.Now()
	for i := range lost {
		eventually(t, "unready Pod", func() error {
			pod, err := f.api.Client.CoreV1().Pods(namespace).Get(t.Context(), podName(i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			unready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse
			})
			if !unready {
				return errors.New(podName(i) + " is ready")
			}
			return nil
		})
	}
	t.Logf("%d Pods are unready %v after their nodes fell silent", lost, time.Since(begin))
}

// wait is the Wait of a follower.
type wait func(ctx context.Context, ok func(*fwd.Table) bool) error

// reach waits until the Services have these numbers of endpoints.
func (f *machines) reach(t *testing.T, follow wait, want map[string]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var got map[string]int
	err := follow(ctx, func(table *fwd.Table) bool {
		got = endpointsOf(table)
		return fmt.Sprint(got) == fmt.Sprint(want)
	})
	if err != nil {
		t.Fatalf("%v: endpoints %v, want %v", err, got, want)
	}
}

// leastOf follows a table until ctx ends, and returns the smallest numbers of endpoints that it saw.
func leastOf(ctx context.Context, follow wait) map[string]int {
	least := map[string]int{}
	_ = follow(ctx, func(table *fwd.Table) bool { // it ends with ctx alone
		for name, n := range endpointsOf(table) {
			if was, seen := least[name]; !seen || n < was {
				least[name] = n
			}
		}
		return false
	})
	return least
}

// endpointsOf counts the endpoints that take new connections, of the Services of the fleet.
func endpointsOf(table *fwd.Table) map[string]int {
	counts := map[string]int{}
	for _, p := range table.Ports() {
		if p.Namespace == namespace {
			counts[p.Name] = len(p.Cluster())
		}
	}
	return counts
}
