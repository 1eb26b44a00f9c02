package binaries

import (
	"context"
	"fmt"
	"io"
)

// Helm returns the executable of helm, which renders and installs charts/fairlead, and builds it if the cache lacks it, which
// takes a minute. It is no part of a Set, since no cluster runs it.
func Helm(ctx context.Context, root string, progress io.Writer) (string, error) {
	return single(ctx, root, tool{name: "helm", module: "helm", pkg: "helm.sh/helm/v4/cmd/helm", ldflags: "-s -w"}, progress)
}

// Promtool returns the executable of Prometheus' promtool, which checks alert rules and has them fire, and builds it if the
// cache lacks it, which takes a minute. It has no service discovery, of which every cloud's client is a part.
func Promtool(ctx context.Context, root string, progress io.Writer) (string, error) {
	t := tool{
		name: "promtool", module: "promtool", pkg: "github.com/prometheus/prometheus/cmd/promtool", ldflags: "-s -w", tags: "remove_all_sd",
	}
	return single(ctx, root, t, progress)
}

// Kubeconform returns the executable of kubeconform, which compares manifests with schemas, and builds it if the cache lacks it,
// which takes seconds.
func Kubeconform(ctx context.Context, root string, progress io.Writer) (string, error) {
	t := tool{name: "kubeconform", module: "kubeconform", pkg: "github.com/yannh/kubeconform/cmd/kubeconform", ldflags: "-s -w"}
	return single(ctx, root, t, progress)
}

func single(ctx context.Context, root string, t tool, progress io.Writer) (string, error) {
	path, err := t.ensure(ctx, root, progress)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", t.name, err)
	}
	return path, nil
}
