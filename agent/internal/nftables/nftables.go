// Package nftables is the dataplane.Interface that forwards by nf_tables, written over netlink, in both families.
//
// Input are two fwd tables and what differs between them. The plan (plan*.go, pure) has two halves: chains and sets, which
// hardly ever change, and elements of the sets, which is what a Service is. The diff (diff*.go, pure) says what to write by
// comparing them with what the kernel was last known to hold. The kernel half (message.go, socket.go, readback.go,
// backend.go) sends transactions and reads back.
//
// Everything of ours lies in the tables "ip fairlead" and "ip6 fairlead"; nothing else is ever touched. All chains are of
// type nat, which see the first packet of a connection only: established connections pay nothing. docs/adr/0005 says why
// the maps look as they do. Its neighbours are the loop in internal/proxy, which calls it, and internal/conntrack, which
// ends stale UDP flows after it.
package nftables
