package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// A Service with so many named ports, six tenths of which each of so many Pods has, needs more addresses in its Endpoints
// object than that may hold, since no two ports have the same Pods. Without a third of the Pods they fit. With more ports
// and fewer Pods, upstream fails for good: see upstream_differences_test.go.
const (
	crowd      = "crowd"
	crowdPods  = 80
	crowdPorts = 24
)

// testOverCapacity: an Endpoints object is truncated as upstream does it, ready addresses first, and whole again once all
// fit. Which addresses of a subset stay is left open: upstream sorts subsets by a hash over UIDs.
func testOverCapacity(t *testing.T, c *clusters) {
	inBoth := func(do func(context.Context, kubernetes.Interface) error) {
		t.Helper()
		if err := c.both(t, do); err != nil {
			t.Fatal(err)
		}
		c.round++
		c.agree(t)
	}
	truncated := func() string {
		for line := range strings.SplitSeq(c.describe(t, c.ours), "\n") {
			if strings.HasPrefix(line, crowd+" endpoints ") && strings.Contains(line, corev1.EndpointsOverCapacity) {
				return line[strings.LastIndex(line, " ready="):]
			}
		}
		return "no"
	}
	inBoth(createCrowd)
	if got := truncated(); got != " ready=1000 unready=0" {
		t.Errorf("with all Pods ready, truncated: %s", got)
	}
	inBoth(func(ctx context.Context, client kubernetes.Interface) error {
		return eachOfCrowd(func(i int, name string) error {
			if i%3 != 0 {
				return nil
			}
			return setReady(ctx, client, name, corev1.ConditionFalse)
		})
	})
	if got := truncated(); got == "no" || strings.HasSuffix(got, " unready=0") || strings.HasPrefix(got, " ready=1000") {
		t.Errorf("with a third of the Pods not ready, truncated: %s", got)
	}
	inBoth(func(ctx context.Context, client kubernetes.Interface) error {
		return eachOfCrowd(func(i int, name string) error {
			if i%3 != 0 {
				return nil
			}
			return client.CoreV1().Pods(crowd).Delete(ctx, name, *metav1.NewDeleteOptions(0))
		})
	})
	if got := truncated(); got != "no" {
		t.Errorf("with two thirds of the Pods, truncated: %s", got)
	}
}

func createCrowd(ctx context.Context, client kubernetes.Interface) error {
	if err := createNamespace(ctx, client, crowd); err != nil {
		return err
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "s"}}}
	for i := range crowdPorts {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(1000 + i), TargetPort: intstr.FromString(fmt.Sprintf("p%d", i))})
	}
	if _, err := client.CoreV1().Services(crowd).Create(ctx, svc, metav1.CreateOptions{}); err != nil {
		return err
	}
	return eachOfCrowd(func(i int, name string) error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "s"}},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "main", Image: "none"}}},
		}
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		for j := range crowdPorts {
			if rng.IntN(10) < 6 {
				pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{Name: fmt.Sprintf("p%d", j), ContainerPort: int32(2000 + j)})
			}
		}
		created, err := client.CoreV1().Pods(crowd).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		address := fmt.Sprintf("10.242.0.%d", 1+i)
		created.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		}
		_, err = client.CoreV1().Pods(crowd).UpdateStatus(ctx, created, metav1.UpdateOptions{})
		return err
	})
}

func eachOfCrowd(do func(i int, name string) error) error {
	for i := range crowdPods {
		if err := do(i, fmt.Sprintf("p%d", i)); err != nil {
			return err
		}
	}
	return nil
}

func setReady(ctx context.Context, client kubernetes.Interface, name string, ready corev1.ConditionStatus) error {
	pod, err := client.CoreV1().Pods(crowd).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	_, err = client.CoreV1().Pods(crowd).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}
