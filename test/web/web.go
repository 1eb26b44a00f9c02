// Package web is the application that stories and tests are told about: a Deployment with
// a real readiness probe whose Pods drain as good Pods do, and a Service in front of it.
//
// Input: an admin client. Output: running, ready Pods behind a virtual address.
package web

import (
	"context"
	"fmt"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead/fairlead/test/cluster"
)

// The application.
const (
	Namespace = "default"
	Name      = "web"
	Replicas  = 3
	// HTTPPort is where a Pod serves; Port is where the Service does.
	HTTPPort = 8080
	Port     = 80
	// EchoPort is where both echo lines over TCP and datagrams over UDP.
	EchoPort = 9090
	// Drain is how long a Pod that is told to end goes on serving, unready. Longer than a
	// readiness probe's period, as it should be for any Pod.
	Drain = 5 * time.Second
)

func labels() map[string]string { return map[string]string{"app": Name} }

// container serves and has a real readiness probe.
func container(flags ...string) core.Container {
	return core.Container{
		Name: "serve", Image: cluster.WorkloadImage, ImagePullPolicy: core.PullNever,
		Args: append([]string{"serve"}, flags...),
		ReadinessProbe: &core.Probe{
			ProbeHandler:  core.ProbeHandler{HTTPGet: &core.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(HTTPPort)}},
			PeriodSeconds: 1, FailureThreshold: 1, SuccessThreshold: 1,
		},
	}
}

// deployment has a real readiness probe, and Pods that drain.
func deployment(version string) *apps.Deployment {
	count, grace := int32(Replicas), int64(30)
	one := intstr.FromInt32(1)
	zero := intstr.FromInt32(0)
	return &apps.Deployment{
		ObjectMeta: meta.ObjectMeta{Name: Name},
		Spec: apps.DeploymentSpec{
			Replicas: &count,
			Selector: &meta.LabelSelector{MatchLabels: labels()},
			Strategy: apps.DeploymentStrategy{RollingUpdate: &apps.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &zero}},
			Template: core.PodTemplateSpec{
				ObjectMeta: meta.ObjectMeta{Labels: labels(), Annotations: map[string]string{"version": version}},
				Spec: core.PodSpec{
					TerminationGracePeriodSeconds: &grace,
					TopologySpreadConstraints: []core.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: core.LabelHostname, WhenUnsatisfiable: core.ScheduleAnyway,
						LabelSelector: &meta.LabelSelector{MatchLabels: labels()}, MatchLabelKeys: []string{apps.DefaultDeploymentUniqueLabelKey},
					}},
					Containers: []core.Container{container("--drain", Drain.String())},
				},
			},
		},
	}
}

func service() *core.Service {
	return &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: Name},
		Spec: core.ServiceSpec{
			Selector: labels(),
			Ports: []core.ServicePort{
				{Name: "http", Port: Port, TargetPort: intstr.FromInt32(HTTPPort)},
				{Name: "echo", Port: EchoPort},
				{Name: "echo-udp", Port: EchoPort, Protocol: core.ProtocolUDP},
			},
		},
	}
}

// Deploy makes both and returns the Service's address when all Pods are ready.
func Deploy(ctx context.Context, client kubernetes.Interface) (string, error) {
	svc, err := client.CoreV1().Services(Namespace).Create(ctx, service(), meta.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create Service: %w", err)
	}
	if _, err := client.AppsV1().Deployments(Namespace).Create(ctx, deployment("1"), meta.CreateOptions{}); err != nil {
		return "", fmt.Errorf("create Deployment: %w", err)
	}
	_, err = ReadyPods(ctx, client)
	return svc.Spec.ClusterIP, err
}

// Roll replaces all Pods and returns when the new ones are ready and the old ones gone.
func Roll(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.AppsV1().Deployments(Namespace).Update(ctx, deployment(time.Now().String()), meta.UpdateOptions{}); err != nil {
		return fmt.Errorf("roll Deployment: %w", err)
	}
	_, err := ReadyPods(ctx, client)
	return err
}

// ReadyPods waits until the Deployment is as it was last asked to be and all its Pods are ready, and returns them. A Pod
// may be unready for a moment at any time: its probe has a second, on a machine that may be busy.
func ReadyPods(ctx context.Context, client kubernetes.Interface) ([]core.Pod, error) {
	var pods []core.Pod
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, cluster.Patience, true, func(ctx context.Context) (bool, error) {
		d, err := client.AppsV1().Deployments(Namespace).Get(ctx, Name, meta.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("get Deployment: %w", err)
		}
		if s := d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas != Replicas || s.ReadyReplicas != Replicas || s.Replicas != Replicas {
			return false, nil
		}
		list, err := client.CoreV1().Pods(Namespace).List(ctx, meta.ListOptions{LabelSelector: "app=" + Name})
		if err != nil {
			return false, fmt.Errorf("list Pods: %w", err)
		}
		pods = list.Items
		unready := func(p core.Pod) bool { return !IsReady(&p) }
		return len(pods) == Replicas && !slices.ContainsFunc(pods, unready), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the Deployment's Pods: %w", err)
	}
	return pods, nil
}

// IsReady reports a Pod's Ready condition.
func IsReady(p *core.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodReady {
			return c.Status == core.ConditionTrue
		}
	}
	return false
}
