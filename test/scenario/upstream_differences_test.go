package scenario

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// This is all in which what is published differs from upstream v1.36 on purpose, and how the comparison
// meets each.
//
//   - Names: the values of the labels managed-by end in .fairlead.io. describeMeta cuts the domain off.
//   - Nodes: a Node that appears or changes its zone is in the slices at once. Upstream writes it when the Service changes
//     next, or a failed attempt is repeated. So upstream is nudged and ours is not.
//   - Deletions: a slice that was there when the controller started and was deleted since is restored at once. Upstream
//     restores only those that it has written since, until it is nudged.
//   - Stuck mirrors: where an Endpoints object changes its ports and families so that one mirrored slice could be reused
//     and two are new, upstream at times writes one of them under the name of a slice that exists, and fails for as long as
//     that lasts. Ours is compared with upstream after freeMirrors.
//   - Equal ports: two subsets of an Endpoints object that name the same port with an appProtocol are one port. Upstream
//     compares pointers, and lists it twice. The histories have an appProtocol in the first subset only.
//   - Truncation: where rounding up leaves a subset of an Endpoints object of over 1,000 addresses with none, the subset goes.
//     Upstream sends it, the API server refuses that, and the object stays as it was for good. Which addresses stay
//     depends on hashes over UIDs upstream; only how many are ready is compared.
//   - Leader election: a record that has the name of a Service without a selector is not deleted with it. isRecord leaves
//     it out.
//   - Empty slices: beside slices with endpoints, an empty one may be left; whether it is, depends on which moments the
//     library met, here and there. describe leaves it out.
//   - Trigger time: the annotation's value is a time of its own in each cluster, and left out.
//   - Hints of topology mode Auto depend on what was handed out before. The Node n3 without a zone at the start and the
//     zones after it leave nothing to hand out most of the time; what is handed out is compared.

// nudge makes upstream's controllers look at every Service with a selector again.
func (c *clusters) nudge(t *testing.T) {
	t.Helper()
	list, err := c.upstream.client.CoreV1().Services(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"nudged":%q}}}`, time.Now().Format(time.RFC3339Nano))
	for _, s := range list.Items {
		if len(s.Spec.Selector) == 0 {
			continue
		}
		if _, err := c.upstream.client.CoreV1().Services(s.Namespace).Patch(t.Context(), s.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// freeMirrors deletes all slices that upstream has mirrored, so that it writes them anew.
func (c *clusters) freeMirrors(t *testing.T) {
	t.Helper()
	mirrored := metav1.ListOptions{LabelSelector: "endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io"}
	for _, w := range c.worlds {
		if w.ending {
			continue
		}
		if err := c.upstream.client.DiscoveryV1().EndpointSlices(w.name).DeleteCollection(t.Context(), metav1.DeleteOptions{}, mirrored); err != nil {
			t.Fatal(err)
		}
	}
}
