package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// podKind is what decides which changes of a Pod are possible.
type podKind struct {
	node        string
	hostNetwork bool
	terminating bool
}

func (w *world) createPod() (step, bool) {
	name := fmt.Sprintf("p%d", w.rng.IntN(worldPods))
	if _, exists := w.pods[name]; exists {
		return step{}, false
	}
	pod, kind := w.newPod(name)
	w.pods[name] = kind
	status := w.podStatus(name, kind)
	return w.does("create Pod "+name+" on "+kind.node, func(ctx context.Context, c kubernetes.Interface) error {
		created, err := c.CoreV1().Pods(w.name).Create(ctx, pod.DeepCopy(), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		status.DeepCopyInto(&created.Status)
		_, err = c.CoreV1().Pods(w.name).UpdateStatus(ctx, created, metav1.UpdateOptions{})
		return err
	}), true
}

func (w *world) newPod(name string) (*corev1.Pod, podKind) {
	kind := podKind{node: pick(w.rng, []string{"n1", "n1", "n2", "n2", "n3", "n4", "n9"}), hostNetwork: w.one(8)}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: w.podLabels()},
		Spec: corev1.PodSpec{
			NodeName: kind.node, HostNetwork: kind.hostNetwork,
			Containers: []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
	if !w.one(4) {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: int32(8000 + w.rng.IntN(2))}}
	}
	if w.one(3) {
		pod.Spec.InitContainers = []corev1.Container{{
			Name: "sidecar", Image: "none", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
			Ports: []corev1.ContainerPort{{Name: "side", ContainerPort: 9000}},
		}}
	}
	if w.one(3) {
		pod.Spec.Hostname, pod.Spec.Subdomain = name, fmt.Sprintf("s%d", w.rng.IntN(worldServices))
	}
	return pod, kind
}

func (w *world) podLabels() map[string]string {
	return map[string]string{"app": pick(w.rng, []string{"x", "x", "y", "z"}), "tier": pick(w.rng, []string{"front", "back"})}
}

// podStatus is that of a Pod that runs: mostly ready, with addresses of one or both families.
func (w *world) podStatus(name string, kind podKind) *corev1.PodStatus {
	v4, v6 := fmt.Sprintf("10.244.%d.1%s", w.index, name[1:]), fmt.Sprintf("fd00:244:%d::%s", w.index, name[1:])
	if kind.hostNetwork {
		v4, v6 = "192.0.2.1"+kind.node[1:], "2001:db8::"+kind.node[1:]
	}
	ips := pick(w.rng, [][]string{{v4}, {v4, v6}, {v4, v6}, {v6, v4}, {v6}})
	status := &corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ips[0]}
	for _, ip := range ips {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
	}
	status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: pick(w.rng, []corev1.ConditionStatus{"True", "True", "True", "False"})}}
	return status
}

// podStep changes a Pod.
func (w *world) podStep() (step, bool) {
	name, ok := anyOf(w.rng, w.pods, func(string, podKind) bool { return true })
	if !ok {
		return step{}, false
	}
	kind := w.pods[name]
	switch n := w.rng.IntN(20); {
	// Where nothing can be created, what needs a new slice would find one of the old or none, by the order of a map.
	case n < 9 || w.ending && n < 14 && n != 11:
		status := pick(w.rng, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse})
		return w.statusOf(name, "ready "+string(status), func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		}), true
	case n < 11:
		status := w.podStatus(name, kind)
		return w.statusOf(name, "new status", func(s *corev1.PodStatus) {
			if s.Phase == corev1.PodRunning {
				status.DeepCopyInto(s)
			}
		}), true
	case n < 12:
		phase := pick(w.rng, []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded})
		return w.statusOf(name, "is "+string(phase), func(s *corev1.PodStatus) { s.Phase = phase }), true
	case n < 14:
		labels := w.podLabels()
		return w.does(fmt.Sprintf("labels %v of Pod %s", labels, name), func(ctx context.Context, c kubernetes.Interface) error {
			pod, err := c.CoreV1().Pods(w.name).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return gone(err)
			}
			pod.Labels = labels
			_, err = c.CoreV1().Pods(w.name).Update(ctx, pod, metav1.UpdateOptions{})
			return err
		}), true
	case n < 18 && !kind.terminating:
		kind.terminating = true
		w.pods[name] = kind
		return w.deletePod(name, grace), true
	default:
		delete(w.pods, name)
		return w.deletePod(name, 0), true
	}
}

func (w *world) statusOf(name, what string, change func(*corev1.PodStatus)) step {
	return w.does("Pod "+name+" "+what, func(ctx context.Context, c kubernetes.Interface) error {
		pod, err := c.CoreV1().Pods(w.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return gone(err) // one that had failed goes as soon as it is to terminate
		}
		change(&pod.Status)
		_, err = c.CoreV1().Pods(w.name).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	})
}

// deletePod lets a Pod terminate, or with zero seconds removes it.
func (w *world) deletePod(name string, seconds int64) step {
	return w.does(fmt.Sprintf("delete Pod %s in %d s", name, seconds), func(ctx context.Context, c kubernetes.Interface) error {
		return gone(c.CoreV1().Pods(w.name).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &seconds}))
	})
}
