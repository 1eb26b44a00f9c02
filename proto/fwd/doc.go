// Package fwd is the forwarding table of one node as plain, immutable values: what the controller computes and the agent
// programs. It is all that the two binaries share besides the wire messages.
//
// Input are typed values (ServicePort, Backend, NodeFacts, ClusterFacts), which encode to Rows: opaque bytes with a stable
// key. Rows of one part (common, zone, node) live in a Part, a persistent set with a digest; a Table is three Parts and the
// typed view of them. Diff, Apply and the text form work on any of these. Nothing here does I/O, reads a clock, or changes
// a value that it has handed out.
//
// The specification of keys, digests and parts is the header of fairlead/v1/forwarding.proto.
package fwd
