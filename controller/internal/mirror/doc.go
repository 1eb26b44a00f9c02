// Package mirror keeps a replica's tables like the leader's: the client side of fairlead.v1.Forwarding with ROLE_REPLICA.
//
// Input are the address of the leader, as the election tells it, and the leader's stream; output are whole revisions, as
// table.Steps, for a Store that verifies and adopts them. What is malformed, does not add up, is of an older epoch or stops
// coming ends the stream and changes nothing: the tables stay, agents go on being served, and the leader is asked again, after
// a back-off with full jitter, from what is held. The neighbours are package table, which makes and adopts the revisions, and
// package stream, which is the other end.
package mirror
