// Package nftrace follows a packet through the rules of Fairlead's nftables mode without a kernel.
//
// Input are the rules of one family in nft's language, as `fairlead-agent plan --mode nftables` prints them (Parse), a
// host's own addresses, and a packet (Trace). Output is everything that can become of the packet, with the probabilities.
// It knows nothing of Services. It knows the part of the language that our rules use, and fails on the rest: a rule that it
// passed over would make its answers wrong. The agent's own tests hold that nft reads the same text as what is programmed.
//
// Its neighbours are package journey, whose words it speaks, and package oracle, which asks.
package nftrace
