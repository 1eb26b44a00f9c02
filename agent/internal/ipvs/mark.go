package ipvs

import (
	"net/netip"

	"github.com/fairlead/fairlead/proto/fwd"
)

// A mark stands for the whole packet mark while a packet of a local client is on its way to IPVS: there it picks the virtual
// server of all endpoints instead of that at the packet's address. Bits that are not named are zero:
//
//	31–28, 16  tag: 0101, 1; no other mark is taken for one of ours
//	27, 26     protocol: 1 TCP, 2 UDP, 3 SCTP
//	25         0: of the node port in bits 22–20 and 12–0; 1: of the low bits of the ID in 24–20 and 12–0
//
// Bits 13 to 15 stay free, where this package, internal/iptables, kube-proxy and kubelet keep theirs. Network policies may
// use 16 to 19 for verdicts on packets to the host (Calico does by default: it clears them in filter INPUT and sets 16 on
// what it lets in): the value stays the same under that. ipvsadm prints marks as signed numbers, so bit 31 is zero.
const (
	markTag      = 0x50010000
	markTagMask  = 0xf00fe000
	markHashed   = 1 << 25
	markLowBits  = 13 // of the number, at the low end of the mark; the others are from bit markHighAt on
	markHighAt   = 20
	markProtocol = 26
	// portHighBits and hashBits are how many bits of a port lie above the low ones, and how many of an ID count at all.
	portHighBits = 16 - markLowBits
	hashBits     = 18
)

// markOf is the mark of a Service port: unique where it has a node port, else two may meet in one, see layout.value.
func markOf(p *fwd.Port) uint32 {
	mark, number := uint32(markTag)|uint32(p.Protocol)<<markProtocol, uint32(p.NodePort)
	if number == 0 {
		mark, number = mark|markHashed, uint32(p.ID()%(1<<hashBits)) //nolint:gosec // so few bits fit
	}
	const low = 1<<markLowBits - 1
	return mark | number&low | number>>markLowBits<<markHighAt
}

// markServer names the virtual server by mark of a family. False: the mark is none of ours.
func markServer(f fwd.Family, mark uint32) (object, bool) {
	o := object{kind: shortcut, mark: mark, addr: netip.AddrPortFrom(anyAddr(f), 0), protocol: fwd.Protocol(mark >> markProtocol & 3)}
	unused := mark&markHashed == 0 && mark>>(markHighAt+portHighBits)&3 != 0
	return o, mark&markTagMask == markTag && o.protocol != 0 && !unused
}
