package fairlead

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/fairlead/fairlead/test/cluster"
)

const (
	namespace = "fairlead-system"
	account   = "fairlead-agent"
	// audience of the tokens that agents show to controllers.
	audience = "fairlead-controller"
	// tokenLives is longer than any cluster that is left running on purpose: nobody renews the tokens.
	tokenLives = 30 * 24 * time.Hour
)

// identify makes the Pod of a node's agent, and gives the node what a kubelet gives to that Pod: a token for controllers, one
// for the API server, and the API server's CA, where agents look for them. The node asks for the tokens itself, as
// kubelets do, so that they are bound to the Pod and to the node. The agent runs beside the Pod, in which nothing happens:
// a test can kill it alone, and look at what it does.
func identify(ctx context.Context, c *cluster.Cluster, n *cluster.Node) error {
	pod, err := c.Client.CoreV1().Pods(namespace).Create(ctx, agentPod(n), meta.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make the agent's Pod on %s: %w", n.Name, err)
	}
	kubelet, err := clientOf(c, n)
	if err != nil {
		return err
	}
	files := map[string]string{"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt": string(c.REST.CAData)}
	for path, audiences := range map[string][]string{
		"/var/run/secrets/fairlead/token":                     {audience},
		"/var/run/secrets/kubernetes.io/serviceaccount/token": nil, // the API server's own
	} {
		if files[path], err = token(ctx, kubelet, pod, audiences); err != nil {
			return fmt.Errorf("ask for the token of the agent on %s: %w", n.Name, err)
		}
	}
	for path, content := range files {
		const write = `umask 077; mkdir -p "${1%/*}"; printf %s "$2" >"$1"`
		if _, err := n.Run(ctx, "sh", "-c", write, "write", path, content); err != nil {
			return err
		}
	}
	return nil
}

// agentPod is what the chart's DaemonSet would make on a node, but for the program. Its volumes are real: a node is given
// tokens only for Pods that name them.
func agentPod(n *cluster.Node) *core.Pod {
	projected := func(name, audience string) core.Volume {
		token := &core.ServiceAccountTokenProjection{Audience: audience, Path: "token", ExpirationSeconds: ptr.To(int64(3600))}
		return core.Volume{Name: name, VolumeSource: core.VolumeSource{
			Projected: &core.ProjectedVolumeSource{Sources: []core.VolumeProjection{{ServiceAccountToken: token}}},
		}}
	}
	return &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: account + "-" + n.Name, Labels: map[string]string{"app.kubernetes.io/name": account}},
		Spec: core.PodSpec{
			NodeName: n.Name, ServiceAccountName: account, HostNetwork: true, AutomountServiceAccountToken: ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Tolerations:                   []core.Toleration{{Operator: core.TolerationOpExists}},
			Containers:                    []core.Container{{Name: "beside", Image: cluster.WorkloadImage, ImagePullPolicy: core.PullNever, Args: []string{"pause"}}},
			Volumes:                       []core.Volume{projected("token", audience), projected("apiserver-token", "")},
		},
	}
}

// clientOf speaks as the node does.
func clientOf(c *cluster.Cluster, n *cluster.Node) (kubernetes.Interface, error) {
	path, err := c.Kubeconfig("system:node:"+n.Name, "system:nodes")
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of %s: %w", n.Name, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", n.Name, err)
	}
	return client, nil
}

// token asks for one that is bound to a Pod, until the API server's authorizer has heard of the Pod.
func token(ctx context.Context, kubelet kubernetes.Interface, pod *core.Pod, audiences []string) (string, error) {
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{
		Audiences: audiences, ExpirationSeconds: ptr.To(int64(tokenLives.Seconds())),
		BoundObjectRef: &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	var text string
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		answer, err := kubelet.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, meta.CreateOptions{})
		if apierrors.IsForbidden(err) {
			last = err
			return false, nil
		}
		if err != nil {
			return false, err
		}
		text = answer.Status.Token
		return true, nil
	})
	if err != nil && last != nil {
		return "", fmt.Errorf("%w: %w", err, last)
	}
	return text, err
}

// identifyAll does so for all nodes.
func identifyAll(ctx context.Context, c *cluster.Cluster) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range c.Nodes {
		group.Go(func() error { return identify(ctx, c, n) })
	}
	return group.Wait()
}
