package oracle

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Cluster is what one comparison is about: API objects, and the one node whose rules are compared. Its JSON form is what
// test/tools/oracle reads.
type Cluster struct {
	// Node is the node in question, OtherNodes the rest.
	Node       corev1.Node   `json:"node"`
	OtherNodes []corev1.Node `json:"otherNodes,omitempty"`
	// Interfaces are the addresses that the node's interfaces have, with their prefix lengths; without loopback.
	Interfaces []string `json:"interfaces"`
	Config     Config   `json:"config"`

	Services       []corev1.Service            `json:"services"`
	EndpointSlices []discoveryv1.EndpointSlice `json:"endpointSlices"`
}

// Config is what a cluster's owner configures, in kube-proxy's names.
type Config struct {
	// DetectLocal is ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix, or "" for none.
	DetectLocal         string   `json:"detectLocal"`
	ClusterCIDRs        []string `json:"clusterCIDRs,omitempty"`
	BridgeInterface     string   `json:"bridgeInterface,omitempty"`
	InterfaceNamePrefix string   `json:"interfaceNamePrefix,omitempty"`
	MasqueradeAll       bool     `json:"masqueradeAll,omitempty"`
	MasqueradeBit       int      `json:"masqueradeBit"`
	// LocalhostNodePorts is kube-proxy's alone: Fairlead never forwards what comes to a loopback address.
	LocalhostNodePorts bool     `json:"localhostNodePorts,omitempty"`
	NodePortAddresses  []string `json:"nodePortAddresses,omitempty"`
	// ConntrackLiberal is the sysctl nf_conntrack_tcp_be_liberal.
	ConntrackLiberal bool `json:"conntrackLiberal,omitempty"`
	// AllowedExternalIPs is Fairlead's alone.
	AllowedExternalIPs []string `json:"allowedExternalIPs,omitempty"`
	// ServiceCIDRs are the ranges of cluster IPs, which nftables mode alone looks at.
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`
}

// Clone returns a copy that shares nothing.
func (c *Cluster) Clone() *Cluster {
	text, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("encode cluster: %v", err)) // plain data always encodes
	}
	var clone Cluster
	if err := json.Unmarshal(text, &clone); err != nil {
		panic(fmt.Sprintf("decode cluster: %v", err))
	}
	return &clone
}

// JSON is the cluster as people read it, in a failure.
func (c *Cluster) JSON() string {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Manifests is the cluster as kubectl would print it: one JSON document a line, separated by "---", as
// fairlead-controller's table command takes them.
func (c *Cluster) Manifests() ([]byte, error) {
	var text []byte
	add := func(kind, version string, object any) error {
		encoded, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("encode %s: %w", kind, err)
		}
		// API objects encode without their own kind; the two fields come first in the object.
		text = fmt.Appendf(text, "---\n{\"kind\":%q,\"apiVersion\":%q,%s\n", kind, version, encoded[1:])
		return nil
	}
	for _, node := range append([]corev1.Node{c.Node}, c.OtherNodes...) {
		if err := add("Node", "v1", node); err != nil {
			return nil, err
		}
	}
	for _, svc := range c.Services {
		if err := add("Service", "v1", svc); err != nil {
			return nil, err
		}
	}
	for _, slice := range c.EndpointSlices {
		if err := add("EndpointSlice", "discovery.k8s.io/v1", slice); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// Addrs are the addresses of the node's interfaces, in the order of Interfaces.
func (c *Cluster) Addrs() []netip.Addr {
	var addrs []netip.Addr
	for _, text := range c.Interfaces {
		addrs = append(addrs, netip.MustParsePrefix(text).Addr())
	}
	return addrs
}

// addrsOf returns the fit addresses of one family among texts.
func addrsOf(family fwd.Family, texts ...string) []netip.Addr {
	var addrs []netip.Addr
	for _, text := range texts {
		if a, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && fwd.FamilyOf(a) == family {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// slicesOf are the EndpointSlices of a Service.
func (c *Cluster) slicesOf(svc *corev1.Service) []discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(c.EndpointSlices), func(s discoveryv1.EndpointSlice) bool { return !belongs(&s, svc) })
}

// belongs reports whether a slice says that it is one of the Service's.
func belongs(s *discoveryv1.EndpointSlice, svc *corev1.Service) bool {
	return s.Namespace == svc.Namespace && s.Labels[discoveryv1.LabelServiceName] == svc.Name
}
