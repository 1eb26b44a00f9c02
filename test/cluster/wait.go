package cluster

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WaitReady returns when every node is ready and Pods can be made in the default
// namespace.
func (c *Cluster) WaitReady(ctx context.Context) error {
	err := poll(ctx, "all nodes to be ready", func(ctx context.Context) (bool, error) { return c.Healthy(ctx), nil })
	if err != nil {
		return fmt.Errorf("%w; see the logs in %s", err, c.files.logs())
	}
	// The controller manager makes this account; no Pod is admitted before.
	return poll(ctx, "the default ServiceAccount", func(ctx context.Context) (bool, error) {
		_, err := c.Client.CoreV1().ServiceAccounts("default").Get(ctx, "default", meta.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// nodeReady also wants the taint gone that keeps Pods away from a fresh node.
func nodeReady(node core.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == core.TaintNodeNotReady || taint.Key == core.TaintNodeUnreachable {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == core.NodeReady {
			return condition.Status == core.ConditionTrue
		}
	}
	return false
}

// Healthy says whether the API server is ready and so is every node.
func (c *Cluster) Healthy(ctx context.Context) bool {
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, meta.ListOptions{})
	if err != nil || len(nodes.Items) != len(c.Nodes) {
		return false
	}
	for _, node := range nodes.Items {
		if !nodeReady(node) {
			return false
		}
	}
	return true
}
