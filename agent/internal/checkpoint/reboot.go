package checkpoint

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// WithoutLocal returns t without the endpoints that lived on its own node, for a table from before a reboot: their Pods get
// new addresses, and others may get theirs. differs is what t and the result do not have in common.
//
// Local are the addresses in the Node's Pod CIDRs and, for networks that do not use these, all that a Service with a Local
// policy has in this node's list. Endpoints at the Node's own addresses (host network) are gone as well, but nobody else
// gets their address: where a cluster list has no others they stay, since the API server of a cluster with one control plane
// node is such an endpoint.
func WithoutLocal(t *fwd.Table) (without *fwd.Table, differs fwd.Changed, err error) {
	before := earlier{node: t.Node(), pods: localPods(t)}
	remove := map[fwd.Scope][]string{}
	for id, port := range t.Ports() {
		for _, s := range fwd.Scopes() {
			for _, b := range before.gone(s, port.List(s)) {
				remove[s] = append(remove[s], fwd.BackendKey(id, b.Addr))
			}
		}
	}
	var change fwd.Change
	for _, s := range fwd.Scopes() {
		if len(remove[s]) > 0 {
			part := t.Part(s)
			diff := fwd.DiffParts(part, part.With(remove[s], nil))
			change.Parts[s] = &diff
		}
	}
	return t.Apply(change) //nolint:wrapcheck // a difference between parts applies to them
}

// localPods are the addresses that the lists for Local policies name. A list of this node without such a policy follows hints,
// which may name endpoints of other nodes.
func localPods(t *fwd.Table) map[netip.Addr]bool {
	pods := map[netip.Addr]bool{}
	for _, port := range t.Ports() {
		if !port.InternalLocal && !port.ExternalLocal {
			continue
		}
		for _, b := range port.List(fwd.Node) {
			pods[b.Addr.Addr()] = true
		}
	}
	return pods
}

// earlier is what lived on a node before its reboot.
type earlier struct {
	node fwd.NodeFacts
	pods map[netip.Addr]bool
}

// gone returns the backends of one list that a reboot has ended. All of the node's own list are: without them a Local policy
// answers nothing and health checks of load balancers fail, which sends clients elsewhere.
func (e earlier) gone(s fwd.Scope, list []fwd.Backend) []fwd.Backend {
	if s == fwd.Node {
		return list
	}
	pods, hosts, others := 0, 0, 0
	for _, b := range list {
		switch {
		case e.isHost(b):
			hosts++
		case e.isPod(b):
			pods++
		case b.State != fwd.Kept:
			others++
		}
	}
	if pods+hosts == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(b fwd.Backend) bool {
		return !e.isPod(b) && !e.isHost(b) || e.isHost(b) && others == 0
	})
}

func (e earlier) isHost(b fwd.Backend) bool { return slices.Contains(e.node.Addresses, b.Addr.Addr()) }

func (e earlier) isPod(b fwd.Backend) bool {
	addr := b.Addr.Addr()
	inRange := func(p netip.Prefix) bool { return p.Contains(addr) }
	return !e.isHost(b) && (e.pods[addr] || slices.ContainsFunc(e.node.PodCIDRs, inRange))
}
