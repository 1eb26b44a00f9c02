package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead/fairlead/test/scenario/script"
)

// namespace holds the objects of all scenarios, one after the other.
const namespace = "s"

// grace is the time that a terminated Pod would have; nobody ends it.
const grace = int64(3600)

// resource tells how the API server calls a kind.
type resource struct {
	schema.GroupVersionResource
	clusterWide bool
}

func resourceOf(kind string) (resource, error) {
	core := schema.GroupVersion{Version: "v1"}
	switch kind {
	case "Service":
		return resource{core.WithResource("services"), false}, nil
	case "Pod":
		return resource{core.WithResource("pods"), false}, nil
	case "Endpoints":
		return resource{core.WithResource("endpoints"), false}, nil
	case "EndpointSlice":
		return resource{schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}.WithResource("endpointslices"), false}, nil
	case "Node":
		return resource{core.WithResource("nodes"), true}, nil
	case "Namespace":
		return resource{core.WithResource("namespaces"), true}, nil
	}
	return resource{}, fmt.Errorf("kind %q: not one that scenarios use", kind)
}

// objects writes scenarios' objects.
type objects struct{ client dynamic.Interface }

func (o objects) of(r resource) dynamic.ResourceInterface {
	if r.clusterWide {
		return o.client.Resource(r.GroupVersionResource)
	}
	return o.client.Resource(r.GroupVersionResource).Namespace(namespace)
}

// apply makes an object what its manifest says, the status included: what the manifest does not name any more is gone.
func (o objects) apply(ctx context.Context, object script.Object) error {
	r, err := resourceOf(object.Kind)
	if err != nil {
		return err
	}
	fields := complete(object, r)
	status := fields["status"]
	delete(fields, "status")
	if err := o.patch(ctx, r, object.Name, fields); err != nil {
		return fmt.Errorf("apply %v: %w", object.Ref, err)
	}
	if status == nil {
		return nil
	}
	// Not by server-side apply: it refuses a Node's addresses of both families.
	replace, err := json.Marshal([]any{map[string]any{"op": "add", "path": "/status", "value": status}})
	if err != nil {
		return fmt.Errorf("encode status of %v: %w", object.Ref, err)
	}
	if _, err := o.of(r).Patch(ctx, object.Name, types.JSONPatchType, replace, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write status of %v: %w", object.Ref, err)
	}
	return nil
}

func (o objects) patch(ctx context.Context, r resource, name string, fields map[string]any) error {
	body, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	force := true
	_, err = o.of(r).Patch(ctx, name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "scenario", Force: &force})
	return err
}

// delete removes an object; with seconds 0 at once. One that is not there is no error.
func (o objects) delete(ctx context.Context, ref script.Ref, seconds int64) error {
	r, err := resourceOf(ref.Kind)
	if err != nil {
		return err
	}
	err = o.of(r).Delete(ctx, ref.Name, metav1.DeleteOptions{GracePeriodSeconds: &seconds})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %v: %w", ref, err)
	}
	return nil
}

// complete fills in what scenarios leave out.
func complete(object script.Object, r resource) map[string]any {
	fields := maps.Clone(object.Fields)
	fields["apiVersion"] = r.GroupVersion().String()
	if object.Kind != "Pod" {
		return fields
	}
	spec := part(fields, "spec")
	if spec["containers"] == nil {
		spec["containers"] = []any{map[string]any{"name": "main"}}
	}
	for _, c := range spec["containers"].([]any) {
		c.(map[string]any)["image"] = "none"
	}
	status := part(fields, "status")
	if status["phase"] == nil {
		status["phase"] = "Running"
	}
	if ips, ok := status["podIPs"].([]any); ok && len(ips) > 0 {
		status["podIP"] = ips[0].(map[string]any)["ip"]
	}
	return fields
}

// part gives fields a copy of one of its maps, and returns it.
func part(fields map[string]any, name string) map[string]any {
	of, _ := fields[name].(map[string]any)
	of = maps.Clone(of)
	if of == nil {
		of = map[string]any{}
	}
	fields[name] = of
	return of
}

// eventually looks until ok says nothing is wrong any more: for what offers no event.
func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	deadline := time.After(patience)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		case <-ticker.C:
		}
	}
}
