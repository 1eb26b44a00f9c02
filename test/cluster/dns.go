package cluster

import (
	"context"
	_ "embed" // for the manifest
	"fmt"
	"os/exec"
	"strings"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed coredns.yaml
var corednsManifest string

// Apply gives manifests (YAML, any number of documents) to the API server with kubectl
// and returns when all objects are written.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	cmd := exec.CommandContext(ctx, c.Kubectl(), "--kubeconfig", c.AdminKubeconfig(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifests)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apply manifests: %w: %s", err, output)
	}
	return nil
}

// DeployCoreDNS deploys cluster DNS: two replicas and a dual-stack Service. It does not
// wait: the Pods get ready once a Service proxy leads them to the API server; see
// WaitCoreDNS.
func (c *Cluster) DeployCoreDNS(ctx context.Context) error {
	dns := c.plan.dns()
	manifest := strings.NewReplacer("CLUSTER_IP_4", dns[0].String(), "CLUSTER_IP_6", dns[1].String()).Replace(corednsManifest)
	return c.Apply(ctx, manifest)
}

// WaitCoreDNS returns when both replicas of CoreDNS are ready.
func (c *Cluster) WaitCoreDNS(ctx context.Context) error {
	return poll(ctx, "CoreDNS to be ready", func(ctx context.Context) (bool, error) {
		deployment, err := c.Client.AppsV1().Deployments("kube-system").Get(ctx, "coredns", meta.GetOptions{})
		if err != nil {
			return false, err
		}
		return deployment.Status.ReadyReplicas == 2, nil
	})
}
