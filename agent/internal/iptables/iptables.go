// Package iptables is the dataplane.Interface that forwards by iptables, in either flavour (nft, legacy) and both families.
//
// Input are two fwd tables and what differs between them. The plan (plan*.go, pure) says which chains a table needs: a tree
// of dispatch chains by the low bits of the virtual IP, and chains per Service port. The diff (diff.go, pure) says which of
// them must be written, by comparing them with what the kernel was last known to hold. The kernel half (kernel.go,
// flavor.go, readback.go, anchors.go) runs iptables-restore and iptables-save.
//
// Everything of ours lies in chains with the prefix FL-, reached by one jump from each built-in chain that it needs.
// Its neighbours are the loop in internal/proxy, which calls it, and internal/conntrack, which ends stale UDP flows after it.
package iptables
