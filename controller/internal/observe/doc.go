// Package observe knows which node forwards by which revision.
//
// Input are the lives of streams (Connected, then what was sent, applied, refused) and the revisions as they are published.
// Output are Prometheus metrics, a status for people and programs, the table of any node as text, and waits: Wait returns
// when every connected node's kernel holds a revision.
//
// A node that a revision does not concern hears nothing of it, and yet is current: a node holds everything up to the
// position of its follower once it has applied the last revision that was sent to it. The neighbours are stream, which
// calls this package, and table, whose positions it asks for; app joins them.
package observe
