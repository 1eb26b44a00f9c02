package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
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

// Validate says what the mode lacks: LocalClusterCIDR needs the Pods' ranges in the cluster, LocalBridge the name of a device,
// LocalPrefix the beginning of such names. LocalNodeCIDR takes the Pod CIDRs from the table's node facts.
func (m LocalMode) Validate(clusterCIDRs []netip.Prefix, device string) error {
	switch m {
	case LocalNone, LocalNodeCIDR:
	case LocalClusterCIDR:
		if len(clusterCIDRs) == 0 {
			return errors.New("detect-local mode ClusterCIDR: needs a cluster CIDR")
		}
	case LocalBridge, LocalPrefix:
		// IFNAMSIZ is 16 with the end; a prefix needs room for the + behind it.
		if !regexp.MustCompile(`^[A-Za-z0-9_.-]{1,14}$`).MatchString(device) {
			return fmt.Errorf("interface %q: detect-local mode %s needs a name of up to 14 letters, digits, dots and dashes", device, m)
		}
	default:
		return fmt.Errorf("detect-local mode %q: want ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix", m)
	}
	return nil
}
