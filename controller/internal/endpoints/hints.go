package endpoints

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// distribution is where traffic should stay, as spec.trafficDistribution asks for it.
type distribution uint8

const (
	anywhere distribution = iota
	sameZone
	sameNode
)

// distributionOf is the rule of SEMANTICS 1.12 (KEP-4444, KEP-3015): the topology annotation goes before the field, and an
// unknown value is no preference.
func distributionOf(svc *corev1.Service) distribution {
	if svc.Spec.TrafficDistribution == nil || HintsFromSlices(svc) {
		return anywhere
	}
	switch *svc.Spec.TrafficDistribution {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
		return sameZone
	case corev1.ServiceTrafficDistributionPreferSameNode:
		return sameNode
	}
	return anywhere
}

// hints are those of a ready endpoint: its own zone and, for PreferSameNode, its own node, as far as they are known.
func (d *derivation) hints(e Endpoint) (zones, nodes []string) {
	if d.distribution >= sameZone && e.Zone != "" {
		zones = d.one(e.Zone)
	}
	if d.distribution == sameNode && e.Node != "" {
		nodes = d.one(e.Node)
	}
	return zones, nodes
}

func (d *derivation) one(name string) []string {
	if d.names[name] == nil {
		d.names[name] = []string{name}
	}
	return d.names[name]
}

// WithHints returns eps with the hints that slices give to the same addresses, and no others: for Services with
// HintsFromSlices. slices are those that we wrote for the Service. An endpoint that they lack (not written yet) has no hint,
// so that every node uses all endpoints until it has been written. The result is sorted by Compare.
func WithHints(eps []Endpoint, written []*discoveryv1.EndpointSlice) []Endpoint {
	hints := map[netip.Addr]*discoveryv1.EndpointHints{}
	for _, slice := range written {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.Hints == nil || len(e.Addresses) == 0 {
				continue
			}
			if a, err := ParseAddr(e.Addresses[0]); err == nil {
				hints[a] = e.Hints
			}
		}
	}
	hinted := slices.Clone(eps)
	for i := range hinted {
		hinted[i].HintZones, hinted[i].HintNodes = hintNames(hints[hinted[i].Addr])
	}
	slices.SortFunc(hinted, Compare)
	return hinted
}

func hintNames(h *discoveryv1.EndpointHints) (zones, nodes []string) {
	if h == nil {
		return nil, nil
	}
	for _, z := range h.ForZones {
		zones = append(zones, z.Name)
	}
	for _, n := range h.ForNodes {
		nodes = append(nodes, n.Name)
	}
	slices.Sort(zones)
	slices.Sort(nodes)
	return slices.Compact(zones), slices.Compact(nodes)
}
