package cluster

import (
	"context"
	_ "embed" // for the manifest
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed kubeproxy.yaml
var kubeProxyManifest string

// DeployKubeProxy deploys kube-proxy as a DaemonSet, in mode iptables or nftables, and returns when it runs on all its nodes. It
// then has programmed them, or is about to. A patch of the DaemonSet, a strategic merge in JSON, comes before its first Pod;
// nil is none. A second call changes the mode.
func (c *Cluster) DeployKubeProxy(ctx context.Context, mode string, patch []byte) error {
	manifest := strings.NewReplacer(
		"WORKLOAD_IMAGE", WorkloadImage, "PROXY_MODE", mode, "POD_CIDRS", joined(c.plan.pods()),
		"API_HOST", c.plan.apiServer()[0].String(), "API_PORT", strconv.Itoa(apiServerPort), "KUBE_PROXY", c.bins["kube-proxy"],
	).Replace(kubeProxyManifest)
	if patch != nil {
		patched, err := c.patched(ctx, manifest, patch)
		if err != nil {
			return err
		}
		manifest = patched
	}
	if err := c.Apply(ctx, manifest); err != nil {
		return err
	}
	return c.WaitDaemonSet(ctx, "kube-system", "kube-proxy")
}

// patched is a manifest in which every DaemonSet is patched, as kubectl does it without a cluster.
func (c *Cluster) patched(ctx context.Context, manifest string, patch []byte) (string, error) {
	var done []string
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		if !strings.Contains(document, "\nkind: DaemonSet\n") {
			done = append(done, document)
			continue
		}
		cmd := exec.CommandContext(ctx, c.Kubectl(), "patch", "--local", "-f", "-", "-o", "yaml", "--type", "strategic", "--patch", string(patch))
		cmd.Stdin = strings.NewReader(document)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		output, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("patch manifest: %w: %s", err, stderr.String())
		}
		done = append(done, string(output))
	}
	return strings.Join(done, "\n---\n"), nil
}

// WaitDaemonSet returns when a DaemonSet is as it was last asked to be, and ready on all nodes that it is for, as `kubectl
// rollout status` does.
func (c *Cluster) WaitDaemonSet(ctx context.Context, namespace, name string) error {
	return poll(ctx, fmt.Sprintf("DaemonSet %s to be rolled out", name), func(ctx context.Context) (bool, error) {
		d, err := c.Client.AppsV1().DaemonSets(namespace).Get(ctx, name, meta.GetOptions{})
		if err != nil {
			return false, err
		}
		s := d.Status
		return s.ObservedGeneration >= d.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled &&
			s.NumberReady == s.DesiredNumberScheduled && s.CurrentNumberScheduled == s.DesiredNumberScheduled && s.NumberMisscheduled == 0, nil
	})
}
