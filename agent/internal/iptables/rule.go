package iptables

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Rule is one iptables rule as a typed value: the matches that must all hold, and what is done then. It is comparable;
// two rules are the same rule iff they are equal. A zero field does not match on anything.
type Rule struct {
	Src, Dst AddrMatch
	// In matches the name of the incoming device; a trailing + stands for any rest.
	In string
	// Protocol 0 is any; DPort needs one.
	Protocol fwd.Protocol
	DPort    PortRange
	// SrcLocal and DstLocal: the address is one of this host's own.
	SrcLocal, DstLocal bool
	State              StateMatch
	Mark               MarkMatch
	// SameAddr: the source is the destination, which after translation is an endpoint that reached itself.
	SameAddr bool
	// Probability is in units of 2^-31; 0 is no match on chance.
	Probability uint32
	Recent      RecentMatch
	Comment     string

	Verdict Verdict
	// Chain is the target of Jump and Goto.
	Chain string
	// To is the new destination of DNAT.
	To netip.AddrPort
	// SetMark is what MarkPacket does.
	SetMark MarkValue
	// RandomFully is the option of Masquerade.
	RandomFully bool
}

// AddrMatch holds if the address, masked, is Addr; Not turns it around. Mask may have holes. The zero value is no match.
type AddrMatch struct {
	Addr, Mask netip.Addr
	Not        bool
}

// PortRange is inclusive; the zero value is no match.
type PortRange struct{ Low, High uint16 }

// StateMatch holds if the connection is in any of States.
type StateMatch struct {
	States ConnState
	Not    bool
}

// ConnState is a set of states of connection tracking.
type ConnState uint8

// The states that rules ask for. StateDNAT is a connection whose destination was translated.
const (
	StateInvalid ConnState = 1 << iota
	StateNew
	StateRelated
	StateEstablished
	StateDNAT
)

// MarkMatch holds if the packet's mark, masked, is Value.
type MarkMatch struct {
	MarkValue
	Not bool
}

// MarkValue is some bits of a mark: those in Mask are as in Value.
type MarkValue struct{ Value, Mask uint32 }

// RecentMatch is xt_recent: remember the source address in the list Name, or (Seconds > 0) hold if it was seen there in
// the last Seconds, and remember it anew.
type RecentMatch struct {
	Name    string
	Seconds uint32
}

// Verdict is what a rule does with a packet that matches.
type Verdict uint8

// The verdicts. None counts only; our plans never do that.
const (
	None Verdict = iota
	Accept
	Drop
	Reject
	Return
	Jump
	Goto
	MarkPacket
	DNAT
	Masquerade
)

// certain is the Probability that would always hold.
const certain = 1 << 31

// toPrefix matches addresses in a prefix.
func toPrefix(p netip.Prefix) AddrMatch {
	mask := make([]byte, len(p.Addr().AsSlice()))
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	m, _ := netip.AddrFromSlice(mask)
	return AddrMatch{Addr: p.Masked().Addr(), Mask: m}
}

// toAddr matches one address.
func toAddr(a netip.Addr) AddrMatch { return toPrefix(netip.PrefixFrom(a, a.BitLen())) }

// prefixBits is the length of the mask, or false if it has holes.
func (m AddrMatch) prefixBits() (int, bool) {
	bits, ended := 0, false
	for _, b := range m.Mask.AsSlice() {
		for i := 7; i >= 0; i-- {
			if b>>i&1 == 0 {
				ended = true
				continue
			}
			if ended {
				return 0, false
			}
			bits++
		}
	}
	return bits, true
}

// names of states, in the order in which they are written.
func stateNames() []struct {
	state ConnState
	name  string
} {
	return []struct {
		state ConnState
		name  string
	}{{StateInvalid, "INVALID"}, {StateNew, "NEW"}, {StateRelated, "RELATED"}, {StateEstablished, "ESTABLISHED"}, {StateDNAT, "DNAT"}}
}

// verdictNames are the targets that iptables knows by these names.
func verdictName(v Verdict) string {
	switch v {
	case None, Jump, Goto:
		return ""
	case Accept:
		return "ACCEPT"
	case Drop:
		return "DROP"
	case Reject:
		return "REJECT"
	case Return:
		return "RETURN"
	case MarkPacket:
		return "MARK"
	case DNAT:
		return "DNAT"
	case Masquerade:
		return "MASQUERADE"
	}
	return ""
}

// protocolName is the name as iptables writes it.
func protocolName(p fwd.Protocol) string {
	switch p {
	case fwd.TCP:
		return "tcp"
	case fwd.UDP:
		return "udp"
	case fwd.SCTP:
		return "sctp"
	}
	return ""
}

// hostMask is the mask of one address as iptables writes it.
func hostMask(f fwd.Family) string {
	if f == fwd.IPv6 {
		return "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	return "255.255.255.255"
}

// rejectWith is the answer to a packet to a Service port without endpoints. Clients see it as "refused". A reset is not
// held back by the limits on ICMP, and reaches a client on the same host before it would send again after a second.
func rejectWith(f fwd.Family, p fwd.Protocol) string {
	switch {
	case p == fwd.TCP:
		return "tcp-reset"
	case f == fwd.IPv6:
		return "icmp6-port-unreachable"
	}
	return "icmp-port-unreachable"
}

// sameAddrProgram is classic BPF for xt_bpf: source address equals destination address. iptables has no match of its own
// that compares two fields of a packet; a set would need an entry for each endpoint.
func sameAddrProgram(f fwd.Family) string {
	src, words := 12, 1
	if f == fwd.IPv6 {
		src, words = 8, 4
	}
	n := 4*words + 2
	program := strconv.Itoa(n)
	for w := range words {
		// Load a word of the source, move it to X, load the word of the destination, go on if both are equal.
		dst := src + 4*words
		program += fmt.Sprintf(",32 0 0 %d,7 0 0 0,32 0 0 %d,29 0 %d 0", src+4*w, dst+4*w, n-1-(4*w+4))
	}
	return program + ",6 0 0 65535,6 0 0 0"
}
