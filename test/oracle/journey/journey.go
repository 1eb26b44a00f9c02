// Package journey has the words for what becomes of a packet in a node's rules, whichever tool's language they are in.
//
// A Packet and what the Host knows go in, Results come out: every Outcome that chance can lead to, with its probability. Its
// neighbours are package iptrace, which walks iptables rules, package nftrace, which walks those of our nftables mode, and
// package oracle, which compares.
package journey

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// State is what connection tracking knows of a packet.
type State string

// The states. Only a New packet meets the nat table.
const (
	New         State = "NEW"
	Established State = "ESTABLISHED"
	Invalid     State = "INVALID"
)

// Packet is a packet as it arrives, or with In empty as a process of the host sends it.
type Packet struct {
	In       string // device
	Src, Dst netip.Addr
	Protocol fwd.Protocol
	DPort    uint16
	State    State // "" is New
}

// Host is what the kernel knows besides the rules: the addresses that are its own. Loopback addresses always are.
type Host struct{ Addrs []netip.Addr }

// Owns reports whether an address is one of the host's own.
func (h Host) Owns(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(h.Addrs, a) }

// Memory is what the node remembers of the packet's source: the seconds since it was last seen, by the name of what
// remembers it, which the ruleset chooses.
type Memory map[string]uint32

// Fate is how a packet's walk ends.
type Fate string

// The fates. Accepted is Passed by a rule in filter's INPUT or FORWARD that says so, whatever the chain's policy.
const (
	Passed   Fate = "passed"
	Accepted Fate = "accepted"
	Dropped  Fate = "dropped"
	Rejected Fate = "rejected"
)

// Outcome is one thing that can become of a packet.
type Outcome struct {
	Fate Fate
	// To is the translated destination; the zero value is none.
	To netip.AddrPort
	// Masquerade: the source is replaced by an address of the host.
	Masquerade bool
	// Mark is the packet's mark when it leaves.
	Mark uint32
}

// String returns a line such as "accepted to 10.0.0.1:80, masqueraded".
func (o Outcome) String() string {
	text := string(o.Fate)
	if o.To.IsValid() {
		text += " to " + o.To.String()
	}
	if o.Masquerade {
		text += ", masqueraded"
	}
	if o.Mark != 0 {
		text += fmt.Sprintf(", mark %#x", o.Mark)
	}
	return text
}

// Result is an Outcome, how likely it is, and the names in Memory that then stand for the client, sorted.
type Result struct {
	Outcome
	Probability float64
	Remembered  []string
}
