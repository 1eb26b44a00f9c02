package traffic

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/workload"
)

// pod is a client in a Pod. Its log is held open, for the kubelet removes it with the Pod.
type pod struct {
	cluster *cluster.Cluster
	object  *core.Pod
	log     *os.File
}

// FromPod starts a client in a Pod of its own on a node, in namespace default, and
// returns when it runs.
func FromPod(ctx context.Context, c *cluster.Cluster, node string, cfg workload.LoadConfig) (Client, error) {
	grace := int64(10)
	object := &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: cfg.Client, Labels: map[string]string{"app": "client"}},
		Spec: core.PodSpec{
			NodeName: node, RestartPolicy: core.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			Containers: []core.Container{{
				Name: "load", Image: cluster.WorkloadImage, ImagePullPolicy: core.PullNever, Args: args(cfg),
			}},
		},
	}
	object, err := c.Client.CoreV1().Pods("default").Create(ctx, object, meta.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create client Pod: %w", err)
	}
	p := &pod{cluster: c, object: object}
	path := filepath.Join(c.Node(node).Logs(), "pods",
		fmt.Sprintf("%s_%s_%s", object.Namespace, object.Name, object.UID), "load", "0.log")
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, cluster.Patience, true, func(context.Context) (bool, error) {
		p.log, err = os.Open(path)
		return err == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for client Pod %s to run: %w", object.Name, err)
	}
	return p, nil
}

// Stop implements Client: it deletes the Pod.
func (p *pod) Stop(ctx context.Context) (_ []workload.Sample, err error) {
	defer func() { err = errors.Join(err, p.log.Close()) }()
	pods := p.cluster.Client.CoreV1().Pods(p.object.Namespace)
	if err := pods.Delete(ctx, p.object.Name, meta.DeleteOptions{}); err != nil {
		return nil, fmt.Errorf("delete client Pod: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, cluster.Patience, true, func(ctx context.Context) (bool, error) {
		_, err := pods.Get(ctx, p.object.Name, meta.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for client Pod to end: %w", err)
	}
	return parsePodLog(p.log)
}
