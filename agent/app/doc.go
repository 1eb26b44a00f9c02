// Package app is fairlead-agent: its configuration, its commands, and the order of its stages.
//
// Input is a Config (from flags and a file, or made by a test); Run makes the kernel of the current network namespace forward
// by what the controllers send, until its context ends, and leaves the rules in place then:
//
//	controllers ─► client.Client ─► store.Store ─► proxy.Loop ─► dataplane ─► kernel
//	                 ▲  ▲                  ▲           ├─► conntrack, healthcheck, succession, predecessor
//	         bootstrap  └─ reports ────────┼───────────┴─► checkpoint ─► disk
//	                                       └── at a start without controllers ──┘
//
// No stage knows another one; the adapters between them are here (stages.go, steps.go, checkpoint.go, trust.go). What dataplanes there are is a table
// (modes.go). Command reads the command line; some commands ask the agent that runs on the node (ask.go, explain.go), by a socket (admin.go).
package app
