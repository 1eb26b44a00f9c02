package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Address is the kind of address that a Service port is reached by.
type Address string

// The kinds, in the order in which they go before one another.
const (
	ClusterIP      Address = "cluster IP"
	LoadBalancerIP Address = "load-balancer IP"
	ExternalIP     Address = "external IP"
	NodePort       Address = "node port"
)

// find returns the Service port that a packet is for, and says why; nil is none.
func (h Host) find(t *fwd.Table, p Packet) (*fwd.Port, Address, string) {
	found := map[Address]*fwd.Port{}
	for _, port := range t.Ports() {
		if port.Protocol != p.Protocol || port.Family != fwd.FamilyOf(p.To.Addr()) {
			continue
		}
		if address, ok := h.reaches(port, p.To); ok && found[address] == nil {
			found[address] = port
		}
	}
	for _, address := range []Address{ClusterIP, LoadBalancerIP, ExternalIP, NodePort} {
		if port := found[address]; port != nil {
			return port, address, fmt.Sprintf("%v is the %s of %v", p.To, address, port.PortName)
		}
	}
	return nil, "", fmt.Sprintf("%v is no Service port of this protocol", p.To)
}

func (h Host) reaches(port *fwd.Port, to netip.AddrPort) (Address, bool) {
	a := to.Addr()
	switch at := to.Port() == port.ServicePort.Port; {
	case at && port.ClusterIP == a:
		return ClusterIP, true
	case at && slices.Contains(port.LoadBalancerIPs, a):
		return LoadBalancerIP, true
	case at && slices.Contains(port.ExternalIPs, a):
		return ExternalIP, true
	}
	return NodePort, to.Port() == port.NodePort && port.NodePort != 0 && slices.Contains(h.NodePorts, a)
}

// unserved says what becomes of a packet that is for no Service port.
func (h Host) unserved(t *fwd.Table, p Packet, a *Answer) {
	to := p.To.Addr()
	for _, port := range t.Ports() {
		isCluster := port.ClusterIP == to
		ours := isCluster || h.Mode == modeIPVS && slices.Contains(port.VirtualIPs(), to)
		switch {
		case !ours:
		case h.Mode == modeNFTables, h.Mode == modeIPVS && !within(h.Exclude, to) && !slices.Contains(h.Local, to):
			a.end(Rejected, fmt.Sprintf("the address is a virtual IP of %s/%s, which has no such port: in %s mode that is refused", port.Namespace, port.Name, h.Mode))
			return
		default:
			a.end(Untouched, fmt.Sprintf("the address is a virtual IP of %s/%s, which has no such port: in %s mode such packets go on as they are", port.Namespace, port.Name, h.Mode))
			return
		}
	}
	switch {
	case h.Mode == modeNFTables && within(t.Cluster().ServiceCIDRs, to):
		a.end(Dropped, "the address is in the Services' range (--service-cidrs of the controller) and belongs to no Service: in nftables mode that is dropped, unless somebody else translates it")
	case slices.Contains(h.Local, to) && !slices.Contains(h.NodePorts, to):
		a.end(Untouched, "the address is the node's, and node ports do not answer at it (--nodeport-addresses)")
	default:
		a.end(Untouched, "nothing of ours looks at it")
	}
}
