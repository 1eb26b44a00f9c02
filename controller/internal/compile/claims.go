package compile

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

type claimKind uint8

const (
	claimVirtualIP claimKind = iota // addr is the virtual IP and port
	claimNodePort                   // addr has the port alone
	claimID                         // id alone
)

// claim is something that only one Service port can have.
type claim struct {
	kind     claimKind
	protocol fwd.Protocol
	family   fwd.Family
	addr     netip.AddrPort
	id       fwd.ID
}

func virtualIPClaim(addr netip.AddrPort, protocol fwd.Protocol) claim {
	return claim{kind: claimVirtualIP, addr: addr, protocol: protocol, family: fwd.FamilyOf(addr.Addr())}
}

func nodePortClaim(sp *fwd.ServicePort) claim {
	return claim{kind: claimNodePort, addr: netip.AddrPortFrom(netip.Addr{}, sp.NodePort), protocol: sp.Protocol, family: sp.Family}
}

// claimsOf lists what a Service port asks for, sorted, without duplicates.
func claimsOf(sp *fwd.ServicePort, id fwd.ID) []claim {
	claims := []claim{{kind: claimID, id: id}}
	for _, ip := range sp.VirtualIPs() {
		claims = append(claims, virtualIPClaim(netip.AddrPortFrom(ip, sp.Port), sp.Protocol))
	}
	if sp.NodePort != 0 {
		claims = append(claims, nodePortClaim(sp))
	}
	slices.SortFunc(claims, compareClaims)
	return claims
}

func compareClaims(a, b claim) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), a.addr.Compare(b.addr), cmp.Compare(a.protocol, b.protocol),
		cmp.Compare(a.family, b.family), cmp.Compare(a.id, b.id))
}

// age orders Services by their right to what several claim.
type age struct {
	created int64 // seconds since 1970, as exact as the API is
	uid     types.UID
}

// registry knows who claims what.
type registry map[claim][]*port

func (r registry) add(k claim, p *port) { r[k] = append(r[k], p) }

func (r registry) remove(k claim, p *port) {
	left := slices.DeleteFunc(r[k], func(q *port) bool { return q == p })
	if len(left) == 0 {
		delete(r, k)
		return
	}
	r[k] = left
}

// winner is the rule of SEMANTICS 2.8: a cluster IP beats every other claim, then the older Service, then the smaller UID.
// Within one Service, or where objects have neither, names decide. At least one must claim k.
func (r registry) winner(k claim) *port {
	return slices.MinFunc(r[k], func(a, b *port) int {
		return cmp.Or(
			cmp.Compare(clusterIPRank(a, k), clusterIPRank(b, k)),
			cmp.Compare(a.of.age.created, b.of.age.created),
			strings.Compare(string(a.of.age.uid), string(b.of.age.uid)),
			a.want.PortName.Compare(b.want.PortName),
		)
	})
}

func clusterIPRank(p *port, k claim) int {
	if k.kind == claimVirtualIP && p.want.ClusterIP == k.addr.Addr() {
		return 0
	}
	return 1
}

// grant returns what a Service port gets of what it asks for, and notes what another has. ok is false if not even its ID
// is its own: then it is not forwarded.
func (r registry) grant(p *port, findings endpoints.Findings) (sp fwd.ServicePort, ok bool) {
	sp = p.want
	for _, k := range p.claims {
		w := r.winner(k)
		if w == p {
			continue
		}
		switch k.kind {
		case claimID:
			findings.Add(endpoints.Finding{Reason: ReasonIDTaken, Text: "ports not forwarded, since their hash is that of an older Service port: rename the Service or its port"},
				"%v has that of %v", p.want.PortName, w.want.PortName)
			return sp, false
		case claimNodePort:
			findings.Add(endpoints.Finding{Reason: ReasonNodePortTaken, Text: "node ports that an older Service has"},
				"%d/%v of %v", sp.NodePort, sp.Protocol, w.want.PortName)
			sp.NodePort = 0
		case claimVirtualIP:
			findings.Add(endpoints.Finding{Reason: ReasonVirtualIPTaken, Text: "virtual IPs that another Service has"},
				"%v/%v of %v", k.addr, k.protocol, w.want.PortName)
			sp = withoutIP(sp, k.addr.Addr())
		}
	}
	return sp, true
}

// withoutIP returns sp without one of its virtual IPs; the slices of the original stay as they are.
func withoutIP(sp fwd.ServicePort, ip netip.Addr) fwd.ServicePort {
	if sp.ClusterIP == ip {
		sp.ClusterIP = netip.Addr{}
	}
	sp.ExternalIPs = without(slices.Clone(sp.ExternalIPs), ip)
	sp.LoadBalancerIPs = without(slices.Clone(sp.LoadBalancerIPs), ip)
	return sp
}
