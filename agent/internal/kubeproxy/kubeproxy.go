// Package kubeproxy removes what kube-proxy leaves behind on a host when it goes: in iptables, nftables and IPVS mode.
//
// Input is the network namespace of the calling thread, output the same without kube-proxy's chains, tables, sets, device
// and virtual servers. Chains of kubelets and of network plug-ins begin with KUBE- as well and stay, so kube-proxy's are
// known by their names (Kubernetes v1.20 to v1.36). What it has set to forward at all, such as sysctls, stays too. The
// removal of chains is planned as text (chains.go); servers.go and tables.go speak netlink. await.go tells, by kube-proxy's
// metrics, when one that takes over has programmed the kernel. Its neighbour is agent/app: the command cleanup, and an agent
// that replaces kube-proxy.
package kubeproxy

import (
	"context"
	"errors"
)

// Remove removes all of it. Missing things are no error. Connections translated by iptables or nftables live on, those
// through IPVS end.
func Remove(ctx context.Context) error {
	// Rules refer to sets; the device's addresses tell which virtual servers are kube-proxy's, so that it goes last.
	var errs []error
	for _, step := range []func(context.Context) error{removeServers, removeChains, removeSets, removeTables, removeDevice} {
		errs = append(errs, step(ctx))
	}
	return errors.Join(errs...)
}
