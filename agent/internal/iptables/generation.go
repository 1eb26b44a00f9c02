package iptables

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// generation tells cheaply whether anybody has changed nftables, and with it iptables in the nft flavour, since the rules
// were last read and found right: the kernel counts the transactions of a network namespace.
type generation struct {
	// read asks the kernel; nil in the legacy flavour, which counts nothing.
	read func() (uint32, error)
	// right is the generation whose rules are as expected, if known.
	right uint32
	known bool
	// begun: it will be known soon.
	begun bool
}

// unchanged reports whether the rules are still those found right.
func (g *generation) unchanged() bool {
	if g.read == nil || !g.known {
		return false
	}
	now, err := g.read()
	return err == nil && now == g.right
}

// wrote notes transactions of our own: after them the rules are right if they were before, and if nobody else wrote.
func (g *generation) wrote(transactions int) { g.right += uint32(transactions) }

// forget is for writes whose transactions nobody counts.
func (g *generation) forget() { g.known, g.begun = false, false }

// begin is before a comparison of the rules: whatever others write from now on counts.
func (g *generation) begin() {
	g.forget()
	if g.read == nil {
		return
	}
	var err error
	g.right, err = g.read()
	g.begun = err == nil
}

// end says whether the comparison found the rules right.
func (g *generation) end(right bool) { g.known, g.begun = right && g.begun, false }

// readGeneration asks for the generation of the calling thread's network namespace.
func readGeneration() (uint32, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, unix.NLM_F_ACK)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("read nftables generation: %w", err)
	}
	for _, answer := range answers {
		if len(answer) < nl.SizeofNfgenmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(answer[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, fmt.Errorf("read nftables generation: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.NFTA_GEN_ID && len(a.Value) == 4 {
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, fmt.Errorf("read nftables generation: no answer")
}
