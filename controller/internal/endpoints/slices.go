package endpoints

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/proto/fwd"
)

// FromSlices returns the endpoints that EndpointSlices list for a Service, sorted by Compare (SEMANTICS 1.13): those of a
// Service without a selector, those that others wrote for a Service with one, or all of them where another controller is
// the writer. Slices of another Service or namespace, and headless ones, are passed over. The family is the slice's,
// whatever spec.ipFamilies says.
//
// Of an endpoint's addresses only the first counts, as the API documents it. Duplicates stay: package compile merges them
// by address and port, after results have been appended to one another.
func FromSlices(svc *corev1.Service, written []*discoveryv1.EndpointSlice) ([]Endpoint, []Problem) {
	r := reading{findings: Findings{}}
	for _, slice := range written {
		if !readable(svc, slice) {
			continue
		}
		switch slice.AddressType {
		case discoveryv1.AddressTypeIPv4:
			r.add(slice, fwd.IPv4)
		case discoveryv1.AddressTypeIPv6:
			r.add(slice, fwd.IPv6)
		default:
			r.findings.Add(Finding{ReasonUnsupportedType, "EndpointSlices left out for addressType, want IPv4 or IPv6"},
				"%s: %s", slice.Name, slice.AddressType)
		}
	}
	slices.SortFunc(r.eps, Compare)
	return r.eps, r.findings.Problems()
}

// readable reports whether a slice is one of the Service and not of a headless one, which nobody forwards.
func readable(svc *corev1.Service, slice *discoveryv1.EndpointSlice) bool {
	_, headless := slice.Labels[corev1.IsHeadlessService]
	return !headless && slice.Namespace == svc.Namespace && slice.Labels[discoveryv1.LabelServiceName] == svc.Name
}

// reading is one run of FromSlices.
type reading struct {
	eps      []Endpoint
	findings Findings
}

func (r *reading) add(slice *discoveryv1.EndpointSlice, family fwd.Family) {
	ports := r.ports(slice)
	if len(ports) == 0 {
		return
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		addr, ok := r.address(slice.Name, e, family)
		if !ok {
			continue
		}
		ep := Endpoint{
			Addr: addr, Ports: ports,
			Node: value(e.NodeName, ""), Zone: value(e.Zone, ""),
			// A nil condition means what most endpoints are (SEMANTICS 1.13).
			Ready: value(e.Conditions.Ready, true), Serving: value(e.Conditions.Serving, true),
			Terminating: value(e.Conditions.Terminating, false),
		}
		ep.HintZones, ep.HintNodes = hintNames(e.Hints)
		r.eps = append(r.eps, ep)
	}
}

// address reads an endpoint's first address and refuses those that would reach into the node itself.
func (r *reading) address(slice string, e *discoveryv1.Endpoint, family fwd.Family) (netip.Addr, bool) {
	bad := Finding{ReasonInvalidAddress, "endpoints left out of EndpointSlices for endpoints[].addresses"}
	if len(e.Addresses) == 0 {
		r.findings.Add(bad, "%s: no address", slice)
		return netip.Addr{}, false
	}
	addr, err := ParseAddr(e.Addresses[0])
	if err == nil {
		err = fwd.ValidAddr(addr, family)
	}
	if err != nil {
		r.findings.Add(bad, "%s: %v", slice, err)
		return netip.Addr{}, false
	}
	return addr, true
}

// ports reads a slice's ports. A nil or zero number is no place to forward to and is ignored; a nil name is "" and a nil
// protocol TCP, as the API server defaults them.
func (r *reading) ports(slice *discoveryv1.EndpointSlice) []Port {
	bad := Finding{ReasonInvalidPort, "ports left out of EndpointSlices"}
	ports := make([]Port, 0, len(slice.Ports))
	for _, p := range slice.Ports {
		name, number := value(p.Name, ""), value(p.Port, 0)
		protocol, err := fwd.ParseProtocol(string(value(p.Protocol, corev1.ProtocolTCP)))
		switch {
		case err != nil:
			r.findings.Add(bad, "%s: port %q: %v", slice.Name, name, err)
		case number < 1 || number > 65535:
			r.findings.Add(bad, "%s: port %q: number %d, want 1 to 65535", slice.Name, name, number)
		default:
			ports = append(ports, Port{Name: name, Protocol: protocol, Port: uint16(number)})
		}
	}
	slices.SortFunc(ports, comparePorts)
	return slices.Clip(slices.Compact(ports))
}

func value[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
