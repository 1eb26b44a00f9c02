// Package client is the agent's end of fairlead.v1.Forwarding: it stays connected to one of several controllers, puts
// together and verifies the revisions that it is sent, and sends reports.
//
// Input are messages; output is, for a Store, every table that was verified: complete, with the announced digests. What is
// malformed, does not add up, exceeds a limit or stops coming ends the stream, is counted, and changes nothing: the table
// stays, and after a back-off with full jitter the next controller of the Directory is asked, over TLS 1.3 with credentials
// that are read anew. A table that was found to differ is compared from nothing then. The package holds no table itself; its
// neighbours are internal/bootstrap, which has the Directory, internal/store, and internal/proxy which makes the reports. app
// joins them.
package client
