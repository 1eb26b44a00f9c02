// Package installed runs the product as its users do, on a test cluster: the images that `make images` builds, and the chart,
// by helm. Nothing of it runs outside of Pods.
//
// Input: a cluster, and values of the chart. Output: a System that is upgraded and removed by helm, and read by kubectl. Its
// tests (TestE2E…) hold what an owner counts on: an install, an upgrade under load, a removal without a
// trace, rights that are used, and the way from kube-proxy and back. Package chart renders, package fairlead runs the same
// binaries as processes.
package installed

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/test/chart"
	"github.com/fairlead/fairlead/test/cluster"
)

// Names of the chart's objects; Namespace is where it is installed.
const (
	Namespace  = chart.Namespace
	Controller = "fairlead-controller"
	Agent      = "fairlead-agent"
	Cleanup    = "fairlead-cleanup"
	Uninstall  = "fairlead-uninstall"
)

// UserPrefix begins the names of all users that Fairlead is at an API server.
const UserPrefix = "system:serviceaccount:" + Namespace + ":fairlead-"

// lookAgain is between two looks at what a cluster is waited for.
const lookAgain = 200 * time.Millisecond

// tag tells the images from those of a registry.
const tag = "dev"

// BuildImages builds both images from the repository at root, as `make images` does, and returns their archives. Some 30 s
// where the base image is made already.
func BuildImages(ctx context.Context, root string, out io.Writer) ([]string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "test", "images.sh"), "test")
	cmd.Env = append(os.Environ(), "TAG="+tag)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build images: %w", err)
	}
	var archives []string
	for _, name := range []string{Controller, Agent} {
		archives = append(archives, filepath.Join(root, "bin", "images", name+".tar"))
	}
	return archives, nil
}

// System is an installation, or what is left of it.
type System struct {
	Cluster *cluster.Cluster
	chart   *chart.Chart
}

// Open finds helm and the chart; the first call on a machine builds helm.
func Open(ctx context.Context, c *cluster.Cluster) (*System, error) {
	opened, err := chart.Open(ctx)
	if err != nil {
		return nil, err
	}
	return &System{Cluster: c, chart: opened}, nil
}

// Apply installs the chart with these values, a YAML text, beside those that say what the cluster is, or upgrades to them,
// and returns what helm prints. It does not wait for Pods.
func (s *System) Apply(ctx context.Context, values string) (string, error) {
	merged, err := s.values(values)
	if err != nil {
		return "", err
	}
	return s.chart.Install(ctx, s.Cluster.AdminKubeconfig(), merged)
}

// values are those of the cluster, overlaid with more.
func (s *System) values(more string) (string, error) {
	all := map[string]any{
		"image":   map[string]any{"tag": tag, "pullPolicy": "Never"},
		"cluster": map[string]any{"podCIDRs": words(s.Cluster.PodCIDRs()), "serviceCIDRs": words(s.Cluster.ServiceCIDRs())},
	}
	var over map[string]any
	if err := yaml.UnmarshalStrict([]byte(more), &over); err != nil {
		return "", fmt.Errorf("read values: %w", err)
	}
	overlay(all, over)
	text, err := yaml.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("write values: %w", err)
	}
	return string(text), nil
}

// overlay puts a map over another one, as helm does with values.
func overlay(under, over map[string]any) {
	for key, value := range over {
		below, isMap := under[key].(map[string]any)
		above, areMaps := value.(map[string]any)
		if isMap && areMaps {
			overlay(below, above)
		} else {
			under[key] = value
		}
	}
}

func words[T fmt.Stringer](items []T) []string {
	var list []string
	for _, item := range items {
		list = append(list, item.String())
	}
	return list
}

// WaitReady returns when controllers and agents are as they were last asked to be, and all are ready: each agent's kernel
// then holds a table.
func (s *System) WaitReady(ctx context.Context) error {
	if err := s.WaitController(ctx); err != nil {
		return err
	}
	return s.Cluster.WaitDaemonSet(ctx, Namespace, Agent)
}

// WaitController does so for the controllers alone.
func (s *System) WaitController(ctx context.Context) error {
	_, err := s.Kubectl(ctx, "--namespace", Namespace, "rollout", "status", "deployment/"+Controller, "--timeout", cluster.Patience.String())
	return err
}

// Rendered are the chart's objects with no values but those of the cluster, those included that come and go with a command of helm.
func (s *System) Rendered(ctx context.Context) ([]runtime.Object, error) {
	values, err := s.values("apiServer: {host: 192.0.2.1}")
	if err != nil {
		return nil, err
	}
	return s.chart.Render(ctx, values)
}

// Test runs helm test and returns what the test's Pod printed.
func (s *System) Test(ctx context.Context) (string, error) {
	return s.chart.Test(ctx, s.Cluster.AdminKubeconfig())
}

// Uninstall runs helm uninstall, as a user does, and returns when the Pods are gone.
func (s *System) Uninstall(ctx context.Context) error {
	if err := s.chart.UninstallCleanly(ctx, s.Cluster.AdminKubeconfig()); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, lookAgain, cluster.Patience, true, func(ctx context.Context) (bool, error) {
		pods, err := s.Cluster.Client.CoreV1().Pods(Namespace).List(ctx, meta.ListOptions{})
		return err == nil && len(pods.Items) == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for Pods to end: %w", err)
	}
	return nil
}

// AgentOf returns the agent's Pod on a node.
func (s *System) AgentOf(ctx context.Context, n *cluster.Node) (*core.Pod, error) {
	pods, err := s.Cluster.Client.CoreV1().Pods(Namespace).List(ctx, meta.ListOptions{
		LabelSelector: "app.kubernetes.io/name=" + Agent, FieldSelector: "spec.nodeName=" + n.Name,
	})
	if err != nil {
		return nil, fmt.Errorf("find the agent of %s: %w", n.Name, err)
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("find the agent of %s: there are %d", n.Name, len(pods.Items))
	}
	return &pods.Items[0], nil
}

// AgentLog is the path of the log that the agent's container on a node writes, as the host sees it. The log of a container that
// is started anew is another one.
func (s *System) AgentLog(ctx context.Context, n *cluster.Node) (string, error) {
	pod, err := s.AgentOf(ctx, n)
	if err != nil {
		return "", err
	}
	folder := strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID)}, "_")
	return filepath.Join(n.Logs(), "pods", folder, "agent", "0.log"), nil
}

// Kubectl runs kubectl as an administrator and returns what it prints.
func (s *System) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.Cluster.Kubectl(), append([]string{"--kubeconfig", s.Cluster.AdminKubeconfig()}, args...)...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}
