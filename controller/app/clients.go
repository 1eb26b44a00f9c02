package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead/fairlead/controller/internal/kube"
	"github.com/fairlead/fairlead/controller/internal/publish"
)

// clients are the ways to the API server.
type clients struct {
	// watch is for the informers alone; it waits for an API server that is away.
	watch *rest.Config
	// write is cut off without leadership, by open.
	write kubernetes.Interface
	open  func(ctx context.Context, current func() bool)
	// lease is for the election.
	lease kubernetes.Interface
}

// newClients reads the kubeconfig. It sends nothing.
func newClients(cfg Config, logger *slog.Logger) (*clients, error) {
	base, err := restConfig(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	base.UserAgent = "fairlead-controller/" + cfg.Version
	// The API server warns on each answer that Endpoints are deprecated; they are what we are here to write.
	base.WarningHandler = rest.NoWarnings{}
	base.Wrap(kube.NewReach(logger))

	c := &clients{watch: rest.CopyConfig(base)}
	fence, open := publish.NewFence()
	c.open = open
	write := rest.CopyConfig(base)
	write.ContentType, write.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	write.QPS, write.Burst = float32(cfg.KubeAPIQPS), cfg.KubeAPIBurst
	// A write that hangs is given up before the leadership could be another's.
	write.Timeout = cfg.LeaseRenew
	lease := rest.CopyConfig(write)
	lease.Timeout = max(time.Second, cfg.LeaseRenew/2)
	write.Wrap(fence)
	if c.write, err = kubernetes.NewForConfig(write); err != nil {
		return nil, fmt.Errorf("make client for writes: %w", err)
	}
	if c.lease, err = kubernetes.NewForConfig(lease); err != nil {
		return nil, fmt.Errorf("make client for the lease: %w", err)
	}
	return c, nil
}

// client is for a command that asks a few things and ends.
func (c Command) client(kubeconfig string) (kubernetes.Interface, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent, config.Timeout = "fairlead-controller/"+c.Version, 30*time.Second
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// restConfig finds the API server as kubectl does, and inside a Pod by its ServiceAccount.
func restConfig(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	config, err := loader.ClientConfig()
	switch {
	case err == nil && !speaksHTTP(config.Host):
		return nil, fmt.Errorf("--kubeconfig %s: server %q: want https://HOST:PORT", path, config.Host)
	case err == nil:
		return config, nil
	case path != "" && clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("--kubeconfig %s: names no cluster; want a file that kubectl works with", path)
	case path != "":
		return nil, fmt.Errorf("--kubeconfig %s: %w", path, err)
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("find the API server: this is not a Pod, and there is no kubeconfig; set --kubeconfig")
	default:
		return nil, fmt.Errorf("find the API server: %w; set --kubeconfig", err)
	}
}

// speaksHTTP reports whether client-go can talk to a server of this name, which may lack the scheme.
func speaksHTTP(server string) bool {
	scheme, _, ok := strings.Cut(server, "://")
	return !ok || scheme == "https" || scheme == "http"
}
