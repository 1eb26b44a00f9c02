// Package offline computes a node's forwarding table from manifests, without a cluster: for users who ask what a change
// would do, for tests and for oracles.
//
// Input is what `kubectl get services,pods,nodes,endpointslices,endpoints -A -o yaml` prints, as YAML or JSON, in one
// document or many; other kinds are passed over. Output is the table that packages endpoints and compile make of it, the
// same as a running controller's. Neighbour is the command `fairlead-controller table -f`, which prints it.
package offline

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/controller/internal/compile"
	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Table reads manifests and returns the table of a node, and what a running controller would make Events of. Errors name
// the document, the object and the field.
func Table(r io.Reader, node string, cfg compile.Config) (*fwd.Table, []compile.Problem, error) {
	objects, err := Read(r)
	if err != nil {
		return nil, nil, err
	}
	return objects.Table(node, cfg)
}

// Table returns the table of a node and what the owners of Services should hear of, sorted as in compile.Output. It fails
// if there is no such Node.
//
// Endpoints of a Service with a selector come from the Pods, and from slices that were not made from Pods; where the
// manifests hold no Pod at all, they come from slices alone, as with --endpoints=read.
func (o *Objects) Table(node string, cfg compile.Config) (*fwd.Table, []compile.Problem, error) {
	zone, known := o.Zone(node)
	if !known {
		names := strings.Join(slices.Sorted(maps.Keys(o.nodes)), ", ")
		return nil, nil, fmt.Errorf("node %q: not in the manifests, which have the Nodes [%s]: name one of them, or add it (kubectl get nodes -o yaml)", node, names)
	}
	c := compile.New(cfg)
	for _, n := range o.nodes {
		c.SetNode(n)
	}
	var problems []compile.Problem
	for _, svc := range o.services {
		eps, found := o.endpointsOf(svc)
		c.SetService(svc, eps)
		for _, p := range found {
			problems = append(problems, compile.Problem{Namespace: svc.Namespace, Name: svc.Name, UID: svc.UID, Reason: p.Reason, Message: p.Message})
		}
	}
	out := c.Flush()
	parts := map[fwd.Scope]*fwd.Part{}
	for _, u := range out.Updates {
		switch u.Audience {
		case fwd.Audience{Scope: fwd.Common}, fwd.Audience{Scope: fwd.Zone, Name: zone}, fwd.Audience{Scope: fwd.Node, Name: node}:
			parts[u.Scope] = (&fwd.Part{}).With(u.Remove, u.Put)
		}
	}
	table, err := fwd.NewTable(parts)
	if err != nil {
		return nil, nil, fmt.Errorf("assemble table: %w", err)
	}
	problems = append(problems, out.Problems...)
	slices.SortFunc(problems, func(a, b compile.Problem) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message))
	})
	return table, problems, nil
}

// Zone tells the zone of a Node, for package endpoints.
func (o *Objects) Zone(node string) (zone string, known bool) {
	n, known := o.nodes[node]
	if !known {
		return "", false
	}
	return n.Labels[corev1.LabelTopologyZone], true
}

// endpointsOf derives the endpoints of one Service as a running controller would.
func (o *Objects) endpointsOf(svc *corev1.Service) ([]endpoints.Endpoint, []endpoints.Problem) {
	var written []*discoveryv1.EndpointSlice
	for _, s := range o.slices {
		if s.Namespace == svc.Namespace && s.Labels[discoveryv1.LabelServiceName] == svc.Name {
			written = append(written, s)
		}
	}
	if !endpoints.HasSelector(svc) || len(o.pods) == 0 {
		return endpoints.FromSlices(svc, append(written, o.mirrored(svc, written)...))
	}
	var selected []*corev1.Pod
	for _, p := range o.pods {
		if endpoints.Selects(svc, p) {
			selected = append(selected, p)
		}
	}
	eps, problems, _ := endpoints.FromPods(svc, selected, o)
	derived, foreign := partition(written)
	if endpoints.HintsFromSlices(svc) {
		eps = endpoints.WithHints(eps, derived)
	}
	more, moreProblems := endpoints.FromSlices(svc, foreign)
	return append(eps, more...), append(problems, moreProblems...)
}

// partition tells slices that a controller made from Pods, upstream's or ours, from all others.
func partition(written []*discoveryv1.EndpointSlice) (derived, foreign []*discoveryv1.EndpointSlice) {
	for _, s := range written {
		if strings.HasPrefix(s.Labels[discoveryv1.LabelManagedBy], "endpointslice-controller.") {
			derived = append(derived, s)
		} else {
			foreign = append(foreign, s)
		}
	}
	return derived, foreign
}
