package publish

import (
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Values of the label endpointslice.kubernetes.io/managed-by.
const (
	// SliceController marks slices that are made from Pods.
	SliceController = "endpointslice-controller.fairlead.io"
	// MirrorController marks slices that mirror an Endpoints object.
	MirrorController = "endpointslicemirroring-controller.fairlead.io"

	upstreamSliceController  = "endpointslice-controller.k8s.io"
	upstreamMirrorController = "endpointslicemirroring-controller.k8s.io"
)

// LabelEndpointsManagedBy is on Endpoints objects that a controller wrote (KEP-4974), with ObjectController where it is us.
const (
	LabelEndpointsManagedBy = "endpoints.kubernetes.io/managed-by"
	ObjectController        = "endpoint-controller.fairlead.io"

	upstreamObjectController = "endpoint-controller"
)

// Derived returns the values of the label managed-by of slices that say what Pods, or Endpoints objects, have said before:
// ours and those of the controllers that we replace. Sorted.
func Derived() []string {
	return []string{SliceController, upstreamSliceController, MirrorController, upstreamMirrorController}
}

// managedBy splits slices by their author: ours, theirs (of the controller that we replace), and the others are left out.
// Slices that are being deleted are left out too, so that what they held is written anew.
func managedBy(slices []*discoveryv1.EndpointSlice, our, their string) (ours, theirs []*discoveryv1.EndpointSlice) {
	for _, s := range slices {
		if s.DeletionTimestamp != nil {
			continue
		}
		switch s.Labels[discoveryv1.LabelManagedBy] {
		case our:
			ours = append(ours, s)
		case their:
			theirs = append(theirs, s)
		}
	}
	return ours, theirs
}
