package web

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead/fairlead/test/cluster"
)

// PodConfig says what a single Pod is like. It serves as the application's Pods do.
type PodConfig struct {
	Name, Node string
	Labels     map[string]string
	// Drain is how long the Pod goes on serving after it was told to end, and StayReady
	// that its probe goes on succeeding meanwhile.
	Drain     time.Duration
	StayReady bool
}

// StartPod makes a Pod on a node and returns it when it is ready.
func StartPod(ctx context.Context, client kubernetes.Interface, cfg PodConfig) (*core.Pod, error) {
	grace := int64(cfg.Drain/time.Second) + 10
	pods := client.CoreV1().Pods(Namespace)
	pod, err := pods.Create(ctx, &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: cfg.Name, Labels: cfg.Labels},
		Spec: core.PodSpec{
			NodeName: cfg.Node, TerminationGracePeriodSeconds: &grace,
			Containers: []core.Container{container("--drain", cfg.Drain.String(), "--stay-ready="+strconv.FormatBool(cfg.StayReady))},
		},
	}, meta.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create Pod %s: %w", cfg.Name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, cluster.Patience, true, func(ctx context.Context) (bool, error) {
		pod, err = pods.Get(ctx, cfg.Name, meta.GetOptions{})
		return err == nil && IsReady(pod), err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for Pod %s to be ready: %w", cfg.Name, err)
	}
	return pod, nil
}

// EndPod deletes a Pod without grace and returns when it is gone; a Pod that is gone already is no error.
func EndPod(ctx context.Context, client kubernetes.Interface, name string) error {
	now := int64(0)
	pods := client.CoreV1().Pods(Namespace)
	err := pods.Delete(ctx, name, meta.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Pod %s: %w", name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, cluster.Patience, true, func(ctx context.Context) (bool, error) {
		_, err := pods.Get(ctx, name, meta.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("wait for Pod %s to end: %w", name, err)
	}
	return nil
}

// Tell turns a Pod ready or unready and returns when its status says so.
func Tell(ctx context.Context, client kubernetes.Interface, pod *core.Pod, ready bool) error {
	url := fmt.Sprintf("http://%s:%d/admin/ready?value=%t", pod.Status.PodIP, HTTPPort, ready)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return fmt.Errorf("turn Pod %s: %w", pod.Name, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("turn Pod %s: %w", pod.Name, err)
	}
	if err := response.Body.Close(); err != nil {
		return fmt.Errorf("turn Pod %s: %w", pod.Name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, cluster.Patience, true, func(ctx context.Context) (bool, error) {
		now, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, meta.GetOptions{})
		return err == nil && IsReady(now) == ready, err
	})
	if err != nil {
		return fmt.Errorf("wait for Pod %s to be ready=%t: %w", pod.Name, ready, err)
	}
	return nil
}
