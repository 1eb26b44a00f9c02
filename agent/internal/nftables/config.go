package nftables

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Config is all that the backend needs to be told. The zero value plus a MasqueradeBit is valid.
type Config struct {
	// Families to program; none means both. A family that the kernel lacks is left out, with a log line.
	Families []fwd.Family

	DetectLocal dataplane.LocalMode
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
	for _, p := range slices.Concat(c.ClusterCIDRs, c.NodePortAddresses) {
		if !p.IsValid() || p.Masked() != p || p.Addr().Is4In6() {
			fail("prefix %v: want a network such as 10.0.0.0/8, without bits behind the prefix", p)
		}
	}
	if err := c.DetectLocal.Validate(c.ClusterCIDRs, c.Interface); err != nil {
		fail("%w", err)
	}
	return errors.Join(errs...)
}
