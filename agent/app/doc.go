// Package app is fairlead-agent: its configuration, its commands, and the order of its stages.
//
// Input is a Config (from flags and a file, or made by a test); Run makes the kernel of the current network namespace forward
// by what the controllers send, until its context ends, and leaves the rules in place then:
//
//	controllers ─► client.Client ─► store.Store ─► proxy.Loop ─► dataplane (iptables) ─► kernel
//	                    ▲                              ├─► conntrack, healthcheck
//	                    └────────── reports ───────────┘
//
// No stage knows another one; the adapters between them are here (stages.go, steps.go). Command reads the command line.
package app
