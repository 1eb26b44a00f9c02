// Package iptrace follows a packet through iptables rules without a kernel.
//
// Input are rules as iptables-save prints them or iptables-restore takes them (Parse), a host's own addresses, and a
// packet (Trace). Output is everything that can become of the packet, with the probabilities: dropped, rejected or passed
// on, and to which translated destination, masqueraded or not. It knows nothing of Services and of whose the rules are,
// and fails on a match or target that it does not know: a rule that it passed over would make its answers wrong.
//
// Its neighbour is package oracle, which asks the same questions of two rulesets.
package iptrace
