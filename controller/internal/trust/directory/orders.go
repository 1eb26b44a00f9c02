package directory

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Annotations of the ConfigMap by which the owner speaks to all replicas, those to come among them.
const (
	// AnnotationFreeze keeps the tables as they are; its text is the reason, for people.
	AnnotationFreeze = "fairlead.io/freeze"
	// AnnotationRollback keeps the tables as they were at a time, in RFC 3339.
	AnnotationRollback = "fairlead.io/rollback-to"
)

// Orders are what the owner wants. The zero Orders are none: tables follow the cluster.
type Orders struct {
	// Frozen: tables stay as they are, for a Reason.
	Frozen bool
	Reason string
	// RollbackTo, unless zero, is the time whose tables are wanted; Frozen is true then.
	RollbackTo time.Time
}

// ordersOf reads the annotations. Where the time cannot be read the order is at least to freeze.
func ordersOf(annotations map[string]string) (Orders, error) {
	var o Orders
	o.Reason, o.Frozen = annotations[AnnotationFreeze]
	if text, there := annotations[AnnotationRollback]; there {
		at, err := time.Parse(time.RFC3339, text)
		o.Frozen = true
		if err != nil {
			return o, fmt.Errorf("annotation %s: %q: want a time such as 2026-11-21T12:30:00Z", AnnotationRollback, text)
		}
		o.RollbackTo = at
	}
	return o, nil
}

// Give writes orders for all replicas, in place of those before.
func Give(ctx context.Context, client kubernetes.Interface, namespace string, o Orders) error {
	annotations := map[string]any{AnnotationFreeze: nil, AnnotationRollback: nil} // null takes an annotation away
	if o.Frozen {
		annotations[AnnotationFreeze] = o.Reason
	}
	if !o.RollbackTo.IsZero() {
		annotations[AnnotationRollback] = o.RollbackTo.UTC().Format(time.RFC3339)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encode orders: %w", err)
	}
	maps := client.CoreV1().ConfigMaps(namespace)
	_, err = maps.Patch(ctx, ConfigMapName, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) && o.Frozen {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, Annotations: map[string]string{}}}
		for name, value := range annotations {
			if text, ok := value.(string); ok {
				cm.Annotations[name] = text
			}
		}
		_, err = maps.Create(ctx, cm, metav1.CreateOptions{})
	}
	if err != nil && (o.Frozen || !apierrors.IsNotFound(err)) {
		return fmt.Errorf("write ConfigMap %s/%s: %w", namespace, ConfigMapName, err)
	}
	return nil
}
