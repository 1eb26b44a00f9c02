// Package explain says of one Service why each of its endpoints is in the lists that a node uses, or is not.
//
// Input are the endpoints of the Service as package endpoints has them, and the node's table, which is what agents were sent;
// output is an Answer. Membership is read from the table, reasons come from the endpoints: where no rule explains a membership,
// the Answer says so, and the table is older than the endpoints or held back. Everything here is pure. Its neighbour is package
// app, which has the command and the HTTP handler.
package explain

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Input is what is to be explained.
type Input struct {
	// Namespace and Service name the Service; Node the node and Zone its zone, "" for none.
	Namespace, Service, Node, Zone string
	Endpoints                      []endpoints.Endpoint
	Problems                       []endpoints.Problem
	// Table is the node's.
	Table *fwd.Table
}

// Answer is for one Service on one node.
type Answer struct {
	Service string `json:"service"`
	Node    string `json:"node"`
	Zone    string `json:"zone,omitempty"`
	// Ports are sorted by name. A Service without cluster IP has none.
	Ports []Port `json:"ports"`
	// Problems are what the Service's owner hears of by Events.
	Problems []string `json:"problems,omitempty"`
}

// Port is one port of the Service in one family.
type Port struct {
	Port string `json:"port"`
	// Cluster and Local say who uses the list on this node, and how it was chosen.
	Cluster string `json:"cluster"`
	Local   string `json:"local"`
	// Endpoints are sorted by address.
	Endpoints []Endpoint `json:"endpoints"`
}

// Endpoint is one endpoint at one port.
type Endpoint struct {
	Address netip.AddrPort `json:"address"`
	Node    string         `json:"node,omitempty"`
	Zone    string         `json:"zone,omitempty"`
	State   string         `json:"state"`
	Hints   string         `json:"hints,omitempty"`
	Cluster Membership     `json:"cluster"`
	Local   Membership     `json:"local"`
}

// Membership is whether a list has an endpoint.
type Membership struct {
	In  bool   `json:"in"`
	Why string `json:"why"`
}

// Explain answers.
func Explain(in Input) Answer {
	a := Answer{Service: in.Namespace + "/" + in.Service, Node: in.Node, Zone: in.Zone, Ports: []Port{}}
	var ports []*fwd.Port
	for _, p := range in.Table.Ports() {
		if p.Namespace == in.Namespace && p.Name == in.Service {
			ports = append(ports, p)
		}
	}
	slices.SortFunc(ports, func(a, b *fwd.Port) int { return a.PortName.Compare(b.PortName) })
	for _, p := range ports {
		a.Ports = append(a.Ports, in.port(p))
	}
	for _, p := range in.Problems {
		a.Problems = append(a.Problems, p.Reason+": "+p.Message)
	}
	return a
}

func (in Input) port(p *fwd.Port) Port {
	q := question{Input: in, port: p}
	for i := range in.Endpoints {
		e := &in.Endpoints[i]
		if fwd.FamilyOf(e.Addr) != p.Family {
			continue
		}
		for _, at := range e.At(p.PortName.Port, p.Protocol) {
			q.all = append(q.all, candidate{netip.AddrPortFrom(e.Addr, at.Port), e})
		}
	}
	// Of two with one address and port the better one comes first, and counts.
	slices.SortStableFunc(q.all, func(a, b candidate) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return endpoints.Compare(*a.Endpoint, *b.Endpoint)
	})
	q.all = slices.CompactFunc(q.all, func(a, b candidate) bool { return a.at == b.at })
	out := Port{Port: p.PortName.String(), Cluster: q.clusterList(), Local: q.localList(), Endpoints: []Endpoint{}}
	for _, c := range q.all {
		out.Endpoints = append(out.Endpoints, Endpoint{
			Address: c.at, Node: c.Node, Zone: c.Zone, State: state(c), Hints: hints(c), Cluster: q.inCluster(c), Local: q.inLocal(c),
		})
	}
	return out
}

func state(c candidate) string {
	switch {
	case c.Ready && c.Terminating:
		return "ready, terminating"
	case c.Ready:
		return "ready"
	case c.Serving && c.Terminating:
		return "terminating, serving"
	case c.Terminating:
		return "terminating"
	}
	return "not ready"
}
