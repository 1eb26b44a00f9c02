package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// candidate is one endpoint at one of its ports.
type candidate struct {
	at netip.AddrPort
	*endpoints.Endpoint
}

// question is about one Service port.
type question struct {
	Input

	port *fwd.Port
	all  []candidate
}

// unexplained is what a table shows that endpoints do not account for.
const unexplained = "by its conditions now this should be otherwise: the table is older, frozen, or a removal is held"

// clusterList says where the cluster list comes from (SEMANTICS 2.1 and 2.2).
func (q question) clusterList() string {
	if p := q.port; p.InternalLocal && p.NodePort == 0 && len(p.ExternalIPs)+len(p.LoadBalancerIPs) == 0 {
		return "nobody uses it: internalTrafficPolicy is Local, and there is no way in from outside"
	}
	switch q.port.ClusterScope {
	case fwd.Zone:
		return fmt.Sprintf("that of zone %q: all ready endpoints are hinted to zones", q.Zone)
	case fwd.Node:
		if slices.ContainsFunc(q.port.List(fwd.Node), func(b fwd.Backend) bool { return b.State == fwd.Ready }) {
			return "this node's own: all ready endpoints are hinted to nodes"
		}
		return fmt.Sprintf("that of zone %q: all ready endpoints are hinted to nodes, none of them to this one", q.Zone)
	case fwd.Common:
	}
	if slices.ContainsFunc(q.all, func(c candidate) bool { return len(c.HintZones)+len(c.HintNodes) > 0 }) {
		return "the same on all nodes: hints do not count unless every ready endpoint has one"
	}
	return "the same on all nodes"
}

func (q question) localList() string {
	var who []string
	if q.port.InternalLocal {
		who = append(who, "clients of the cluster IP (internalTrafficPolicy Local)")
	}
	if q.port.ExternalLocal {
		who = append(who, "clients from outside (externalTrafficPolicy Local)")
	}
	if len(who) == 0 {
		return "nobody uses it: no policy is Local"
	}
	return "for " + strings.Join(who, " and ")
}

func (q question) usesLocal() bool { return q.port.InternalLocal || q.port.ExternalLocal }

func find(list []fwd.Backend, at netip.AddrPort) (fwd.State, bool) {
	i := slices.IndexFunc(list, func(b fwd.Backend) bool { return b.Addr == at })
	if i < 0 {
		return 0, false
	}
	return list[i].State, true
}

func (q question) inCluster(c candidate) Membership {
	state, in := find(q.port.Cluster(), c.at)
	switch {
	case in && state == fwd.Draining && c.Serving && c.Terminating:
		return Membership{true, "terminating, and no endpoint is ready"}
	case in && c.Ready:
		return Membership{true, q.whyReady(c)}
	case in:
		return Membership{true, unexplained}
	}
	anyReady := slices.ContainsFunc(q.all, func(c candidate) bool { return c.Ready })
	switch why := q.excluded(c, anyReady); {
	case why != "":
		return Membership{false, why}
	case strings.HasPrefix(q.clusterList(), "nobody"):
		return Membership{false, "nobody uses this list"}
	case c.Ready && q.port.ClusterScope == fwd.Zone, c.Ready && q.port.ClusterScope == fwd.Node:
		return Membership{false, "hinted to " + hints(c) + ", and others to this node or its zone"}
	}
	return Membership{false, unexplained}
}

// whyReady is why a ready endpoint is in the cluster list.
func (q question) whyReady(c candidate) string {
	switch {
	case q.port.ClusterScope == fwd.Node && slices.Contains(c.HintNodes, q.Node):
		return "ready, hinted to this node"
	case q.port.ClusterScope != fwd.Common && slices.Contains(c.HintZones, q.Zone):
		return "ready, hinted to this zone"
	case q.port.ClusterScope != fwd.Common:
		return "ready; no endpoint is hinted to this zone, or not every one to a zone: all are used"
	}
	return "ready"
}

func (q question) inLocal(c candidate) Membership {
	if !q.usesLocal() {
		return Membership{false, "nobody uses this list"}
	}
	state, in := find(q.port.Local(), c.at)
	switch {
	case in && c.Node != q.Node:
		return Membership{true, unexplained}
	case in && state == fwd.Draining && c.Serving && c.Terminating:
		return Membership{true, "terminating, and no endpoint on this node is ready"}
	case in && c.Ready:
		return Membership{true, "ready, on this node"}
	case in:
		return Membership{true, unexplained}
	case c.Node == "":
		return Membership{false, "on no node"}
	case c.Node != q.Node:
		return Membership{false, "on node " + c.Node}
	}
	anyReady := slices.ContainsFunc(q.all, func(c candidate) bool { return c.Ready && c.Node == q.Node })
	if why := q.excluded(c, anyReady); why != "" {
		return Membership{false, why}
	}
	return Membership{false, unexplained}
}

// excluded is why an endpoint is in no list at all, "" if it could be; anyReady: there is a ready one to use instead.
func (q question) excluded(c candidate, anyReady bool) string {
	for _, p := range q.Table.Ports() {
		if p.Protocol == q.port.Protocol && p.ServicePort.Port == c.at.Port() && slices.Contains(p.VirtualIPs(), c.at.Addr()) {
			return "it is a virtual IP and port of " + p.Namespace + "/" + p.Name
		}
	}
	switch {
	case c.Ready:
		return ""
	case !c.Serving && c.Terminating:
		return "terminating, and no longer ready"
	case !c.Serving:
		return "not ready"
	case !c.Terminating:
		return "not ready"
	case anyReady:
		return "terminating, and others are ready"
	}
	return ""
}

func hints(c candidate) string {
	var words []string
	if len(c.HintNodes) > 0 {
		words = append(words, "nodes "+strings.Join(c.HintNodes, ","))
	}
	if len(c.HintZones) > 0 {
		words = append(words, "zones "+strings.Join(c.HintZones, ","))
	}
	return strings.Join(words, ", ")
}
