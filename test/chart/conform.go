package chart

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/test/cluster/binaries"
)

const (
	kubernetes = "k8s.io/kubernetes"
	operator   = "github.com/prometheus-operator/prometheus-operator"

	// definitions holds the schemas of all types of Kubernetes, to which those of the kinds refer.
	definitions = "definitions.json"
)

// Conformer has kubeconform compare manifests with schemas: those of Kubernetes' own API description, and those of the
// Prometheus operator's custom resources, both from the modules that are pinned in test/tools. It asks nothing of a network
// once these modules are in Go's cache.
type Conformer struct{ kubeconform, schemas string }

// NewConformer writes the schemas into the folder dir; the first call on a machine builds kubeconform.
func NewConformer(ctx context.Context, dir string) (*Conformer, error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, err
	}
	path, err := binaries.Kubeconform(ctx, root, os.Stderr)
	if err != nil {
		return nil, err
	}
	for _, write := range []func(context.Context, string, string) error{writeKubernetes, writeOperator} {
		if err := write(ctx, root, dir); err != nil {
			return nil, fmt.Errorf("write schemas: %w", err)
		}
	}
	return &Conformer{kubeconform: path, schemas: dir}, nil
}

// Check compares a stream of manifests with the schemas. A field that a schema lacks, a key that comes twice and a kind without
// a schema are errors, whose text is kubeconform's.
func (c *Conformer) Check(ctx context.Context, manifests []byte) error {
	cmd := exec.CommandContext(ctx, c.kubeconform, "-strict", "-summary", "-schema-location",
		filepath.Join(c.schemas, "{{.ResourceKind}}{{.KindSuffix}}.json"), "-")
	cmd.Stdin = bytes.NewReader(manifests)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubeconform: %w: %s", err, output)
	}
	return nil
}

// writeKubernetes writes a schema of each kind that api/openapi-spec/swagger.json of Kubernetes describes.
func writeKubernetes(ctx context.Context, root, dir string) error {
	folder, err := module(ctx, filepath.Join(root, "test", "tools", "kubernetes"), kubernetes)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(folder, "api", "openapi-spec", "swagger.json"))
	if err != nil {
		return fmt.Errorf("read API description: %w", err)
	}
	var description struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(text, &description); err != nil {
		return fmt.Errorf("read API description: %w", err)
	}
	for name, schema := range description.Definitions {
		strict(schema)
		loosen(name, schema)
		kinds, _ := schema["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // no object, or one of several groups such as DeleteOptions
		}
		kind, _ := kinds[0].(map[string]any)
		of := gvk{fmt.Sprint(kind["group"]), fmt.Sprint(kind["version"]), fmt.Sprint(kind["kind"])}
		if err := of.write(dir, map[string]any{"$ref": definitions + "#/definitions/" + name}); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(dir, definitions), description)
}

// writeOperator writes the schemas in the operator's CustomResourceDefinitions.
func writeOperator(ctx context.Context, root, dir string) error {
	folder, err := module(ctx, filepath.Join(root, "test", "tools", "prometheus-operator"), operator)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(folder, "example", "prometheus-operator-crd", "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("find custom resources: %d in %s: %w", len(files), folder, errors.Join(err, os.ErrNotExist))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read custom resource: %w", err)
		}
		var crd struct {
			Spec struct {
				Group string `json:"group"`
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
				Versions []struct {
					Name   string `json:"name"`
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			return fmt.Errorf("read %s: %w", filepath.Base(file), err)
		}
		for _, version := range crd.Spec.Versions {
			schema := version.Schema.OpenAPIV3Schema
			strict(schema)
			// A CustomResourceDefinition leaves metadata to the API server.
			if properties, ok := schema["properties"].(map[string]any); ok {
				properties["metadata"] = map[string]any{"$ref": definitions + "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
			}
			if err := (gvk{crd.Spec.Group, version.Name, crd.Spec.Names.Kind}).write(dir, schema); err != nil {
				return err
			}
		}
	}
	return nil
}

// gvk is a kind's group, version and name; the core group is "".
type gvk struct{ group, version, kind string }

// write writes a kind's schema where kubeconform looks for it: by its own rule, under the first part of the group's name.
func (k gvk) write(dir string, schema map[string]any) error {
	name := k.kind
	if k.group != "" {
		name += "-" + strings.SplitN(k.group, ".", 2)[0]
	}
	return writeJSON(filepath.Join(dir, strings.ToLower(name+"-"+k.version)+".json"), schema)
}

// strict forbids fields that a schema does not list, in it and in all below it. Descriptions go: they are most of the text, which
// is read once for each kind.
func strict(node any) {
	switch node := node.(type) {
	case []any:
		for _, item := range node {
			strict(item)
		}
	case map[string]any:
		_, lists := node["properties"].(map[string]any)
		if _, says := node["additionalProperties"]; lists && !says && node["type"] == "object" {
			node["additionalProperties"] = false
		}
		if _, text := node["description"].(string); text {
			delete(node, "description")
		}
		for _, item := range node {
			strict(item)
		}
	}
}

// loosen mends what the API description says of the types that may be a number as well as a text.
func loosen(name string, schema map[string]any) {
	switch name {
	case "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
		schema["type"] = []string{"string", "integer"}
	case "io.k8s.apimachinery.pkg.api.resource.Quantity":
		schema["type"] = []string{"string", "number"}
	}
}

func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode schema: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write schema: %w", err)
	}
	return nil
}

// module returns the folder of a module, in the version that the go.mod in dir pins, in Go's cache.
func module(ctx context.Context, dir, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w: %s", path, err, output)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(output, &found); err != nil {
		return "", fmt.Errorf("find module %s: %w", path, err)
	}
	return found.Dir, nil
}
