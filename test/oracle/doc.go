// Package oracle holds Fairlead's iptables and nftables modes equal to kube-proxy's iptables mode, on random clusters.
//
// Input is a seed. Generate makes a Cluster (Services of all kinds, EndpointSlices in all conditions, a node and its
// configuration); KubeProxy and Ours turn it into rules, the one by kube-proxy's own code in a process of its own
// (test/tools/oracle), the other by both halves of Fairlead; Probes are all the packets worth sending; packages iptrace and
// nftrace walk each through all rulesets. Output are Mismatches: a packet, what becomes of it on each side, and the smallest
// cluster that Shrink found to show it. Differences lists what is meant to differ, exactly: what kube-proxy shall see
// instead, or what must become of which packets. docs/differences.md tells users why.
//
// Features counts what the clusters contain, so that a generator that went blind fails the test.
package oracle
