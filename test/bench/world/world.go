// Package world is the cluster that the benchmark shows to every contestant: so many Services with so many endpoints each,
// on one node.
//
// Input are two numbers; output is the same cluster in both languages, as Kubernetes objects for kube-proxy and as a
// forwarding table for fairlead-agent. Cluster IPs are spread over their range as a cluster's allocator spreads them, so
// that no contestant profits from an order. Its neighbours are the servers in listwatch and stream.
package world

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/proto/fwd"
)

const (
	// NodeName is the one node's name.
	NodeName  = "node-1"
	namespace = "bench"
	portName  = "http"
	// ServicePort is the port of all Services.
	ServicePort = 80
	// EndpointPort is the port of all endpoints.
	EndpointPort = 8080
)

// MaxServices is how many Services a World may have.
const MaxServices = 200_000

// MaxEndpoints is how many endpoints each of them may have, MaxTotal how many all may have: as many addresses are theirs.
const (
	MaxEndpoints = 100
	MaxTotal     = 1 << 20
)

// ServiceCIDR holds the cluster IPs.
func ServiceCIDR() netip.Prefix { return netip.MustParsePrefix("10.96.0.0/12") }

// ClusterCIDR holds all Pods; EndpointCIDR, a part of it, those behind Services; PodCIDR, another part, those of the node.
func ClusterCIDR() netip.Prefix { return netip.MustParsePrefix("10.128.0.0/9") }

// EndpointCIDR is described at ClusterCIDR.
func EndpointCIDR() netip.Prefix { return netip.MustParsePrefix("10.192.0.0/10") }

// PodCIDR is described at ClusterCIDR.
func PodCIDR() netip.Prefix { return netip.MustParsePrefix("10.128.0.0/24") }

// NodeAddress is the node's InternalIP.
func NodeAddress() netip.Addr { return netip.MustParseAddr("192.0.2.1") }

// World is a cluster. Its Services are numbered from 0.
type World struct{ Services, Endpoints int }

// String returns "10,000 × 2" for 10,000 Services with two endpoints each.
func (w World) String() string { return fmt.Sprintf("%s × %d", Thousands(w.Services), w.Endpoints) }

// Thousands writes a number with a comma before each three digits.
func Thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Validate says which number is out of range.
func (w World) Validate() error {
	switch {
	case w.Services < 1 || w.Services > MaxServices:
		return fmt.Errorf("services: %d: want 1 to %d", w.Services, MaxServices)
	case w.Endpoints < 1 || w.Endpoints > MaxEndpoints:
		return fmt.Errorf("endpoints: %d: want 1 to %d", w.Endpoints, MaxEndpoints)
	case w.Total() > MaxTotal:
		return fmt.Errorf("services × endpoints: %d: want %d at most", w.Total(), MaxTotal)
	}
	return nil
}

// Total is how many endpoints there are.
func (w World) Total() int { return w.Services * w.Endpoints }

// VirtualIP is where Service i is reached.
func (w World) VirtualIP(i int) netip.AddrPort {
	const odd, size = 611_953, 1 << 20 // an odd factor permutes the range of 2^20 addresses
	return netip.AddrPortFrom(add(ServiceCIDR().Addr(), (i+1)*odd%size), ServicePort)
}

// EndpointsOf are the endpoints that Service i has at the beginning, sorted.
func (w World) EndpointsOf(i int) []netip.AddrPort {
	all := make([]netip.AddrPort, 0, w.Endpoints+1)
	for k := range w.Endpoints {
		all = append(all, netip.AddrPortFrom(add(EndpointCIDR().Addr(), 256+i*w.Endpoints+k), EndpointPort))
	}
	return all
}

// Extra is the endpoint that comes to and goes from Service i.
func (w World) Extra(i int) netip.AddrPort {
	return netip.AddrPortFrom(add(EndpointCIDR().Addr(), 1<<21+i), EndpointPort)
}

// Service is the object of Service i.
func (w World) Service(i int) *corev1.Service {
	single, ip := corev1.IPFamilyPolicySingleStack, w.VirtualIP(i).Addr().String()
	return &corev1.Service{
		ObjectMeta: meta(i, serviceName(i)),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip, ClusterIPs: []string{ip},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: &single,
			Selector: map[string]string{"app": serviceName(i)}, SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Name: portName, Protocol: corev1.ProtocolTCP, Port: ServicePort}},
		},
	}
}

// Slice is the EndpointSlice of Service i, with or without its extra endpoint.
func (w World) Slice(i int, extra bool) *discoveryv1.EndpointSlice {
	port, protocol, number, node, yes, no := portName, corev1.ProtocolTCP, int32(EndpointPort), "node-2", true, false
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  meta(i, serviceName(i)+"-slice"),
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Protocol: &protocol, Port: &number}},
	}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: serviceName(i)}
	for _, a := range w.endpoints(i, extra) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a.Addr().String()}, NodeName: &node,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		})
	}
	return s
}

// Node is the object of the node.
func (w World) Node() *corev1.Node {
	cidr := PodCIDR().String()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: NodeName, UID: types.UID(NodeName)},
		Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: NodeAddress().String()}}},
	}
}

// Rows of the parts that fairlead-controller gives the node for this cluster.
func (w World) Rows() (common, node []fwd.Row) {
	common = append(common, fwd.EncodeCluster(fwd.ClusterFacts{ServiceCIDRs: []netip.Prefix{ServiceCIDR()}}))
	for i := range w.Services {
		common = append(common, fwd.EncodePort(fwd.ServicePort{
			PortName: portOf(i), ClusterIP: w.VirtualIP(i).Addr(), Port: ServicePort, Usable: true,
		}))
		for _, a := range w.EndpointsOf(i) {
			common = append(common, fwd.EncodeBackend(portOf(i).ID(), fwd.Backend{Addr: a}))
		}
	}
	facts := fwd.NodeFacts{PodCIDRs: []netip.Prefix{PodCIDR()}, Addresses: []netip.Addr{NodeAddress()}}
	return common, []fwd.Row{fwd.EncodeNode(facts)}
}

// ExtraRow is the row of the extra endpoint of Service i.
func (w World) ExtraRow(i int) fwd.Row {
	return fwd.EncodeBackend(portOf(i).ID(), fwd.Backend{Addr: w.Extra(i)})
}

// Sample gives n Services spread over the world, without duplicates: fewer if there are not as many.
func (w World) Sample(n int) []int {
	step := max(1, w.Services/n)
	var sample []int
	for i := w.Services - 1; i >= 0 && len(sample) < n; i -= step {
		sample = append(sample, i)
	}
	return slices.Clip(sample)
}

func (w World) endpoints(i int, extra bool) []netip.AddrPort {
	all := w.EndpointsOf(i)
	if extra {
		all = append(all, w.Extra(i))
	}
	return all
}

func meta(i int, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))}
}

func serviceName(i int) string { return fmt.Sprintf("service-%06d", i) }

func portOf(i int) fwd.PortName {
	return fwd.PortName{Family: fwd.IPv4, Namespace: namespace, Name: serviceName(i), Port: portName, Protocol: fwd.TCP}
}

func add(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	v += uint32(n) //nolint:gosec // bounded by Validate
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}
