// Package app is fairlead-agent: its configuration, its commands, and the order of its stages.
//
// Input is a Config (from flags and a file, or made by a test); Run makes the kernel of the current network namespace forward
// by what the controllers send, until its context ends, and leaves the rules in place then:
//
//	controllers ─► client.Client ─► store.Store ─► proxy.Loop ─► dataplane ─► kernel
//	                 ▲  ▲                  ▲           ├─► conntrack, healthcheck, succession
//	         bootstrap  └─ reports ────────┼───────────┴─► checkpoint ─► disk
//	                                       └── at a start without controllers ──┘
//
// No stage knows another one; the adapters between them are here (stages.go, steps.go, checkpoint.go, trust.go). What dataplanes there are is a table
// (modes.go). Command reads the command line.
package app
