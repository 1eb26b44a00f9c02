// Package checkpoint keeps the last table that the kernel took on disk, for a start at which no controller answers.
//
// Input of a Keeper are tables; output is one file, written at most every few seconds and off the hot path. Input of Load is
// that file; output is the table again, verified: a file that is damaged, of another node or cluster, or of another format is refused
// with a line that says so. WithoutLocal takes from a table what a reboot has ended. The file carries the messages of
// fairlead.v1, so that a table has one encoding. app decides what becomes of a loaded table; internal/store keeps it from
// ever replacing one that a controller sent.
package checkpoint
