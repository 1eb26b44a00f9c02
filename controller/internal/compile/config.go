package compile

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/proto/fwd"
)

// MaxPorts is how many ports of one Service are compiled, in the order of its spec. It bounds what one object of a tenant
// costs every node.
const MaxPorts = 1000

// Config is what the cluster's owner decides.
type Config struct {
	// AllowedExternalIPs are the ranges from which spec.externalIPs may be taken; nil allows none (CVE-2020-8554: an
	// external IP takes traffic to any address away from its owner).
	AllowedExternalIPs []netip.Prefix
	// ServiceCIDRs are the ranges of cluster IPs, for agents to know; SetServiceCIDRs changes them later.
	ServiceCIDRs []netip.Prefix
	// ServiceProxyName is the value of the label service.kubernetes.io/service-proxy-name whose Services are compiled;
	// "" compiles the Services without that label (KEP-2447).
	ServiceProxyName string
}

// Output is what changed since the last Flush.
type Output struct {
	// Updates are sorted by audience, at most one for each.
	Updates []fwd.Update
	// Zones are the nodes that came, went or changed their zone; sorted by node.
	Zones []NodeZone
	// Problems are those that a Service did not have at the last Flush; sorted by namespace, name, reason and message.
	Problems []Problem
}

// Empty reports whether nothing changed.
func (o Output) Empty() bool { return len(o.Updates)+len(o.Zones)+len(o.Problems) == 0 }

// NodeZone says in which zone a node is, "" for none. Gone: there is no such Node any more.
type NodeZone struct {
	Node, Zone string
	Gone       bool
}

// Problem is a fact about a Service for its owner: an Event on the object with that UID. Reason is CamelCase, Message one
// line that names the field and the fix.
type Problem struct {
	Namespace, Name string
	UID             types.UID
	Reason, Message string
}

// Reasons of Problems that this package reports.
const (
	ReasonInvalidPort         = "InvalidServicePort"
	ReasonTooManyPorts        = "TooManyServicePorts"
	ReasonInvalidIP           = "InvalidVirtualIP"
	ReasonExternalIPForbidden = "ExternalIPNotAllowed"
	ReasonInvalidSourceRange  = "InvalidSourceRange"
	ReasonInvalidScheduler    = "InvalidIPVSScheduler"
	ReasonVirtualIPTaken      = "VirtualIPConflict"
	ReasonNodePortTaken       = "NodePortConflict"
	ReasonIDTaken             = "ServicePortIDConflict"
	ReasonEndpointIsVirtualIP = "EndpointIsVirtualIP"
)

// AnnotationScheduler asks for an IPVS scheduler by name.
const AnnotationScheduler = "fairlead.io/ipvs-scheduler"

// TaintAutoscaler is on a Node that the cluster autoscaler is about to remove.
const TaintAutoscaler = "ToBeDeletedByClusterAutoscaler"

// labelProxyName names the proxy that a Service belongs to.
const labelProxyName = "service.kubernetes.io/service-proxy-name"
