package nftables

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"

	"github.com/fairlead/fairlead/proto/fwd"
)

// LocalMode is how a packet of a Pod of this node is told from others.
type LocalMode string

// The modes. LocalNone cannot tell: sources are never masqueraded for cluster IPs, and external-local Services do not
// know Pods from others, as in kube-proxy without a cluster CIDR.
const (
	LocalNone        LocalMode = ""
	LocalClusterCIDR LocalMode = "ClusterCIDR"
	LocalNodeCIDR    LocalMode = "NodeCIDR"
	LocalBridge      LocalMode = "BridgeInterface"
	LocalPrefix      LocalMode = "InterfaceNamePrefix"
)

// Config is all that the backend needs to be told. The zero value plus a MasqueradeBit is valid.
type Config struct {
	// Families to program; none means both. A family that the kernel lacks is left out, with a log line.
	Families []fwd.Family

	DetectLocal LocalMode
	// ClusterCIDRs are for LocalClusterCIDR. LocalNodeCIDR takes the Pod CIDRs from the table's node facts.
	ClusterCIDRs []netip.Prefix
	// Interface is the bridge's name or the prefix of names.
	Interface string

	// MasqueradeAll hides the client's address from endpoints for all traffic to cluster IPs.
	MasqueradeAll bool
	// MasqueradeBit is the bit (0 to 31) of the packet mark that says "masquerade"; kube-proxy's is 14.
	MasqueradeBit int

	// NodePortAddresses are prefixes of the local addresses that node ports answer at; none of a family means the node's
	// first address of that family, as its node facts name it. Loopback addresses never answer.
	NodePortAddresses []netip.Prefix

	Logger *slog.Logger
}

// Defaults returns a valid Config with kube-proxy's defaults.
func Defaults() Config {
	return Config{MasqueradeBit: 14, Logger: slog.New(slog.DiscardHandler)}
}

// Validate returns all that is wrong, each naming the field.
func (c Config) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("nftables: "+format, args...)) }
	if c.MasqueradeBit < 0 || c.MasqueradeBit > 31 {
		fail("masquerade bit %d: want 0 to 31", c.MasqueradeBit)
	}
	for field, prefixes := range map[string][]netip.Prefix{"cluster CIDR": c.ClusterCIDRs, "node port address": c.NodePortAddresses} {
		for _, p := range prefixes {
			if !p.IsValid() || p.Masked() != p || p.Addr().Is4In6() {
				fail("%s %v: want a network such as 10.0.0.0/8, without bits behind the prefix", field, p)
			}
		}
	}
	switch c.DetectLocal {
	case LocalNone, LocalNodeCIDR:
	case LocalClusterCIDR:
		if len(c.ClusterCIDRs) == 0 {
			fail("detect-local mode ClusterCIDR: needs a cluster CIDR")
		}
	case LocalBridge, LocalPrefix:
		if !regexp.MustCompile(`^[A-Za-z0-9_.-]{1,14}$`).MatchString(c.Interface) {
			fail("interface %q: detect-local mode %s needs a name of up to 14 letters, digits, dots and dashes", c.Interface, c.DetectLocal)
		}
	default:
		fail("detect-local mode %q: want ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix", c.DetectLocal)
	}
	return errors.Join(errs...)
}
