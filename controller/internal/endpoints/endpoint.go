// Package endpoints says which endpoints a Service has, as plain values: their addresses, ports, conditions, node, zone
// and hints (SEMANTICS section 1).
//
// Input are a Service and either the Pods that it selects and the zones of Nodes (FromPods), or EndpointSlices of other
// authors (FromSlices); results of both may be appended. Output is a list of Endpoints for package compile, and Problems
// that package kube turns into Events. The slices themselves are written by package publish with the library
// k8s.io/endpointslice; a property test holds FromPods equal to that library. Everything here is pure: no input is
// changed, no output refers to a slice of an input.
package endpoints

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Endpoint is one address behind a Service, with every port at which it serves some port of the Service. It is immutable;
// Endpoints of one Service may share slices.
type Endpoint struct {
	// Addr is valid in the sense of fwd.ValidAddr.
	Addr netip.Addr
	// Ports are sorted by name, then protocol, then number, without duplicates; never empty.
	Ports []Port
	// Node and Zone are where the endpoint is; "" where that is not known.
	Node, Zone string
	// Serving is the Pod's Ready condition, Terminating its deletion time stamp; Ready is what takes new connections.
	Ready, Serving, Terminating bool
	// HintZones and HintNodes name the zones and nodes that the endpoint is for; sorted, empty for no hint.
	HintZones, HintNodes []string
}

// Port is where an Endpoint serves a port of the Service.
type Port struct {
	// Name is the name of the port in the Service, "" for an unnamed one.
	Name     string
	Protocol fwd.Protocol
	// Port is the number at the Endpoint, never 0.
	Port uint16
}

// Problem is one fact about a Service that its owner should hear of. Reason is CamelCase, as in Kubernetes Events;
// Message is one line that names the field and the fix.
type Problem struct{ Reason, Message string }

// Reasons of Problems that this package reports.
const (
	ReasonInvalidAddress  = "InvalidEndpointAddress"
	ReasonInvalidPort     = "InvalidEndpointPort"
	ReasonUnsupportedType = "UnsupportedAddressType"
	ReasonNoTargetPort    = "TargetPortNotFound"
)

// Nodes tells the zone of a Node by the Node's name: "" for a Node without the label topology.kubernetes.io/zone. known is
// false for a name that no Node has.
type Nodes interface {
	Zone(node string) (zone string, known bool)
}

// Zones is a Nodes by a map from a Node's name to its zone.
type Zones map[string]string

// Zone looks the Node up.
func (z Zones) Zone(node string) (zone string, known bool) {
	zone, known = z[node]
	return zone, known
}

// Compare orders Endpoints by address, then by which one wins where two have one address and port: the one that is not
// terminating (SEMANTICS 1.13: a Pod network may give the address of a terminating Pod to a new one), then the one that is
// ready, then serving, and further by all that is left, so that the order of two different Endpoints never depends on
// where they came from.
func Compare(a, b Endpoint) int {
	return cmp.Or(
		a.Addr.Compare(b.Addr),
		compareBool(a.Terminating, b.Terminating),
		compareBool(b.Ready, a.Ready),
		compareBool(b.Serving, a.Serving),
		strings.Compare(a.Node, b.Node),
		strings.Compare(a.Zone, b.Zone),
		slices.Compare(a.HintZones, b.HintZones),
		slices.Compare(a.HintNodes, b.HintNodes),
		slices.CompareFunc(a.Ports, b.Ports, comparePorts),
	)
}

func comparePorts(a, b Port) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// At yields the numbers at which the Endpoint serves the Service's port of that name and protocol; the result is a part
// of e.Ports.
func (e *Endpoint) At(name string, protocol fwd.Protocol) []Port {
	first, _ := slices.BinarySearchFunc(e.Ports, Port{Name: name, Protocol: protocol}, comparePorts)
	last := first
	for last < len(e.Ports) && e.Ports[last].Name == name && e.Ports[last].Protocol == protocol {
		last++
	}
	return e.Ports[first:last]
}
