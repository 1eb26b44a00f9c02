// Package chart renders the Helm chart as helm does for a user, and reads what comes out as the API server would.
//
// Input: the chart in charts/fairlead, and values. Output: typed objects; a field that its type does not have is an error. What
// types do not say, such as which fields are required, kubeconform knows from Kubernetes' own schemas (conform.go). The
// package's tests hold what an installation may count on: flags that the binaries take, rights that are granted and no others,
// nothing that depends on cluster DNS or on a cluster IP. Package reference documents the values.
package chart

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/test/cluster/binaries"
)

// Namespace is where the chart is rendered for.
const Namespace = "fairlead-system"

// monitoring is the group of the Prometheus operator, whose types nobody here has.
const monitoring = "monitoring.coreos.com/v1"

// Chart is a chart and the helm that renders it.
type Chart struct{ helm, dir string }

// Open returns this repository's chart; the first call on a machine builds helm.
func Open(ctx context.Context) (*Chart, error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, err
	}
	helm, err := binaries.Helm(ctx, root, os.Stderr)
	if err != nil {
		return nil, err
	}
	return &Chart{helm: helm, dir: filepath.Join(root, "charts", "fairlead")}, nil
}

// Dir is the chart's folder.
func (c *Chart) Dir() string { return c.dir }

// Lint runs helm lint and returns what it complains about.
func (c *Chart) Lint(ctx context.Context) error {
	_, err := c.run(ctx, "", "lint", "--strict", c.dir)
	return err
}

// Render renders the chart with values, a YAML text, into objects in the order of their files. The error is helm's text.
func (c *Chart) Render(ctx context.Context, values string) ([]runtime.Object, error) {
	text, err := c.Template(ctx, values)
	if err != nil {
		return nil, err
	}
	return decode(text)
}

// Template renders the chart with values, a YAML text, into a stream of manifests. The error is helm's text.
func (c *Chart) Template(ctx context.Context, values string) ([]byte, error) {
	return c.run(ctx, values, "template", "release", c.dir, "--namespace", Namespace, "--values", "-")
}

// Install installs the chart in a cluster, or upgrades what is there to these values, and returns what helm prints. It does not
// wait for Pods.
func (c *Chart) Install(ctx context.Context, kubeconfig, values string) (string, error) {
	out, err := c.run(ctx, values, "upgrade", "--install", "fairlead", c.dir, "--kubeconfig", kubeconfig,
		"--namespace", Namespace, "--create-namespace", "--reset-values", "--values", "-")
	return string(out), err
}

// Test runs the chart's test and returns what helm prints, the log of the test's Pod included.
func (c *Chart) Test(ctx context.Context, kubeconfig string) (string, error) {
	out, err := c.run(ctx, "", "test", "fairlead", "--kubeconfig", kubeconfig, "--namespace", Namespace, "--logs", "--timeout", "2m")
	return string(out), err
}

// Uninstall removes what Install made, without the hook, which needs nodes to run on: kernels stay as they are.
func (c *Chart) Uninstall(ctx context.Context, kubeconfig string) error {
	return c.uninstall(ctx, kubeconfig, "--no-hooks")
}

// UninstallCleanly removes what Install made, and what controllers and agents have made since, as helm uninstall does for a user.
func (c *Chart) UninstallCleanly(ctx context.Context, kubeconfig string) error {
	return c.uninstall(ctx, kubeconfig)
}

func (c *Chart) uninstall(ctx context.Context, kubeconfig string, more ...string) error {
	_, err := c.run(ctx, "", append([]string{"uninstall", "fairlead", "--kubeconfig", kubeconfig, "--namespace", Namespace}, more...)...)
	return err
}

// run runs helm apart from the user's own settings and plugins.
func (c *Chart) run(ctx context.Context, stdin string, args ...string) ([]byte, error) {
	home, err := os.MkdirTemp("", "helm")
	if err != nil {
		return nil, fmt.Errorf("run helm: %w", err)
	}
	defer os.RemoveAll(home)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, c.helm, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	cmd.Env = []string{"HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "none"), "PATH=" + os.Getenv("PATH")}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("helm %s: %w: %s%s", args[0], err, stderr.String(), stdout.String())
	}
	return stdout.Bytes(), nil
}

// decode reads a stream of manifests. Fields that a type does not have, and fields that come twice, are errors.
func decode(text []byte) ([]runtime.Object, error) {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var objects []runtime.Object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		fields := map[string]any{}
		if err := sigsyaml.UnmarshalStrict(document, &fields); err != nil {
			return nil, fmt.Errorf("read manifest: %w\n%s", err, document)
		}
		switch {
		case len(fields) == 0: // a comment alone
		case fields["apiVersion"] == monitoring:
			objects = append(objects, &unstructured.Unstructured{Object: fields})
		default:
			object, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				return nil, fmt.Errorf("read %v: %w\n%s", fields["kind"], err, document)
			}
			objects = append(objects, object)
		}
	}
}
