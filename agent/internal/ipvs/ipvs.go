// Package ipvs is the dataplane.Interface that forwards by IPVS, the kernel's load balancer, in both families.
//
// Input are two fwd tables and what differs between them. The plan (plan*.go, pure) says which objects a table needs:
// virtual servers with their real servers, routes that make virtual IPs local, members of a few ipsets. The diff (diff.go,
// pure) compares them with what the kernel was last known to hold. The kernel half (kernel*.go, rules*.go) speaks netlink;
// a fixed number of iptables rules matches on the ipsets, and is written when a backend starts or something broke it.
//
// External traffic under a Local policy needs two lists for one address, which a virtual server has not: local clients are led
// to a second one, by a mark (mark.go). Its neighbours are internal/iptables, which finds the host's flavour and whose settings
// it shares, and the loop in internal/proxy, which calls it.
package ipvs
