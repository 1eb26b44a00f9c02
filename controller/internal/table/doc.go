// Package table is the versioned store of everybody's forwarding table: one fwd.Part per audience (all nodes, one zone, one
// node), the last few versions of each, and the followers that read them.
//
// Input is what compile computed: updates by audience and the zones of nodes, published as revisions. Output is, for each
// Follower, one merged difference between what it took last and the present, as bytes of fairlead.v1.FollowResponse. A
// difference is encoded once per pair of versions, and the same slices go to every follower that needs them; a snapshot is
// encoded once, and carried from version to version by encoding anew only the pieces that a change touched.
//
// There is no queue: a follower is a position, and it is woken at most once until it asks. Nothing here does I/O, reads a
// clock or starts a goroutine; no lock is held while something is encoded, sent or awaited. The neighbour is package
// stream, which carries the bytes.
package table
