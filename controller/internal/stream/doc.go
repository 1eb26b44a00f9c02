// Package stream serves forwarding tables to agents: the server side of fairlead.v1.Forwarding.
//
// Input are Followers, positions in a table store that give encoded revisions, and the agents' hellos and reports. Output
// are messages whose bytes were made elsewhere and are shared by all streams: the codec hands them to gRPC as they are.
// A stream is one goroutine that sends and one that receives; there is no queue. An agent that does not read blocks its own
// goroutine and no other, and gets one merged difference when it reads again.
//
// The package decides who is served: after Config.Synced and Config.Authorize, one live stream per node, the newest; those
// who need a whole table are admitted at a bounded rate, and who holds an unknown version is asked which buckets of it to send.
// Balance gives agents to replicas that have fewer. What agents report goes to Config.Observe. The neighbours are
// table, which makes the Followers, and observe; app joins them.
package stream
