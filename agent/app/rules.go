package app

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/internal/hostinfo"
)

// Rules is how the kernel is made to forward: what a running agent and the command plan have in common.
type Rules struct {
	// Mode is one of modeNames.
	Mode string
	// IPTablesFlavor is nft or legacy; "" is the one that the host uses.
	IPTablesFlavor string
	// DetectLocalMode is how Pods of this node are told from others: ClusterCIDR, NodeCIDR, BridgeInterface or
	// InterfaceNamePrefix; "" is ClusterCIDR where ClusterCIDRs are given, and else they are not told.
	DetectLocalMode                            string
	ClusterCIDRs                               []netip.Prefix
	PodBridgeInterface, PodInterfaceNamePrefix string
	// MasqueradeAll hides clients of cluster IPs from endpoints. MasqueradeBit of the packet mark asks for that.
	MasqueradeAll bool
	MasqueradeBit int
	// NodePortAddresses are prefixes of local addresses that take node ports, or "primary" alone; none is all.
	NodePortAddresses []string
	// KeepInvalid: the kernel's connection tracking is liberal, so that packets it calls invalid are left alone. A running
	// agent asks the kernel.
	KeepInvalid bool
	IPVS        IPVS
}

func defaultRules() Rules { return Rules{Mode: modeAuto, MasqueradeBit: 14, IPVS: defaultIPVS()} }

// in returns the rules as they are in a mode.
func (r Rules) in(mode string) Rules {
	r.Mode = mode
	return r
}

// detectLocal is the mode in force: without one, the cluster's ranges are used if they are given.
func (r Rules) detectLocal() string {
	if r.DetectLocalMode == "" && len(r.ClusterCIDRs) > 0 {
		return "ClusterCIDR"
	}
	return r.DetectLocalMode
}

// nodePortAddresses is the list in force in a mode: nftables mode takes the node's primary addresses unless told otherwise, as
// kube-proxy's does (KEP-3866).
func (r Rules) nodePortAddresses(mode string) []string {
	if mode == modeNFTables && len(r.NodePortAddresses) == 0 {
		return []string{"primary"}
	}
	return r.NodePortAddresses
}

func (r Rules) nodePorts() (prefixes []netip.Prefix, primary bool) {
	for _, s := range r.NodePortAddresses {
		if s == "primary" {
			primary = true
		} else if p, err := netip.ParsePrefix(s); err == nil { // validate has seen all of them
			prefixes = append(prefixes, p.Masked())
		}
	}
	return prefixes, primary
}

// validate reports everything that is wrong, by the name of the flag.
func (r Rules) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(slices.Contains(modeNames(), r.Mode), "--mode %q: this version has %s", r.Mode, strings.Join(modeNames(), ", "))
	check(slices.Contains([]string{"", "nft", "legacy"}, r.IPTablesFlavor), "--iptables-flavor %q: want nft or legacy, or nothing to use the host's", r.IPTablesFlavor)
	check(r.IPTablesFlavor == "" || r.Mode != modeNFTables, "--iptables-flavor %s: --mode nftables has none: leave it out", r.IPTablesFlavor)
	check(r.MasqueradeBit >= 0 && r.MasqueradeBit <= 31, "--iptables-masquerade-bit %d: want 0 to 31", r.MasqueradeBit)
	if _, err := hostinfo.ParseNodePortAddresses(r.NodePortAddresses); err != nil {
		check(false, "--nodeport-addresses: %s", strings.TrimPrefix(err.Error(), "nodeport addresses: "))
	}
	for _, needs := range []struct {
		mode, flag string
		given      bool
	}{
		{"ClusterCIDR", "--cluster-cidr", len(r.ClusterCIDRs) > 0},
		{"BridgeInterface", "--pod-bridge-interface", r.PodBridgeInterface != ""},
		{"InterfaceNamePrefix", "--pod-interface-name-prefix", r.PodInterfaceNamePrefix != ""},
	} {
		check(r.DetectLocalMode != needs.mode || needs.given, "--detect-local-mode %s: needs %s", needs.mode, needs.flag)
		// The cluster CIDR has other uses in kube-proxy, so that it is commonly given in any mode.
		check(r.DetectLocalMode == needs.mode || !needs.given || needs.mode == "ClusterCIDR",
			"%s: needs --detect-local-mode %s, which is %q", needs.flag, needs.mode, r.DetectLocalMode)
	}
	check(slices.Contains([]string{"", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"}, r.DetectLocalMode),
		"--detect-local-mode %q: want ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix", r.DetectLocalMode)
	if len(errs) == 0 {
		errs = append(errs, r.validateModes())
	}
	return errors.Join(errs...)
}
