package demo

import (
	"context"
	"fmt"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead/fairlead/test/cluster"
)

const (
	namespace = "default"
	name      = "web"
	replicas  = 3
	httpPort  = 8080
	// drain is how long a Pod that is told to end goes on serving, unready. Longer than a
	// readiness probe's period, as it should be for any Pod.
	drain = 5 * time.Second
)

var labels = map[string]string{"app": name}

// deployment has a real readiness probe, and Pods that drain.
func deployment(version string) *apps.Deployment {
	count, grace := int32(replicas), int64(30)
	one := intstr.FromInt32(1)
	zero := intstr.FromInt32(0)
	return &apps.Deployment{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec: apps.DeploymentSpec{
			Replicas: &count,
			Selector: &meta.LabelSelector{MatchLabels: labels},
			Strategy: apps.DeploymentStrategy{RollingUpdate: &apps.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &zero}},
			Template: core.PodTemplateSpec{
				ObjectMeta: meta.ObjectMeta{Labels: labels, Annotations: map[string]string{"version": version}},
				Spec: core.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					TopologySpreadConstraints: []core.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: core.LabelHostname, WhenUnsatisfiable: core.ScheduleAnyway,
						LabelSelector: &meta.LabelSelector{MatchLabels: labels},
					}},
					Containers: []core.Container{{
						Name: "serve", Image: cluster.WorkloadImage, ImagePullPolicy: core.PullNever,
						Args: []string{"serve", "--drain", drain.String()},
						ReadinessProbe: &core.Probe{
							ProbeHandler:  core.ProbeHandler{HTTPGet: &core.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(httpPort)}},
							PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
						},
					}},
				},
			},
		},
	}
}

func service() *core.Service {
	return &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec: core.ServiceSpec{
			Selector: labels,
			Ports:    []core.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(httpPort)}},
		},
	}
}

// deploy makes both and returns the Service's address when all Pods are ready.
func deploy(ctx context.Context, client kubernetes.Interface) (string, error) {
	svc, err := client.CoreV1().Services(namespace).Create(ctx, service(), meta.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create Service: %w", err)
	}
	if _, err := client.AppsV1().Deployments(namespace).Create(ctx, deployment("1"), meta.CreateOptions{}); err != nil {
		return "", fmt.Errorf("create Deployment: %w", err)
	}
	return svc.Spec.ClusterIP, rolledOut(ctx, client)
}

// roll replaces all Pods and returns when the new ones are ready and the old ones gone.
func roll(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.AppsV1().Deployments(namespace).Update(ctx, deployment("2"), meta.UpdateOptions{}); err != nil {
		return fmt.Errorf("roll Deployment: %w", err)
	}
	return rolledOut(ctx, client)
}

func rolledOut(ctx context.Context, client kubernetes.Interface) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, meta.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("get Deployment: %w", err)
		}
		if s := d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas != replicas || s.ReadyReplicas != replicas || s.Replicas != replicas {
			return false, nil
		}
		pods, err := readyPods(ctx, client)
		return err == nil && len(pods) == replicas, err
	})
	if err != nil {
		return fmt.Errorf("wait for the Deployment's Pods: %w", err)
	}
	return nil
}

// readyPods returns the Service's Pods, and an error or fewer when some are not ready.
func readyPods(ctx context.Context, client kubernetes.Interface) ([]core.Pod, error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, meta.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	var ready []core.Pod
	for _, p := range pods.Items {
		if isReady(&p) {
			ready = append(ready, p)
		} else {
			return nil, nil
		}
	}
	return ready, nil
}

func isReady(p *core.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodReady {
			return c.Status == core.ConditionTrue
		}
	}
	return false
}
