// Package app is fairlead-controller: its configuration, its commands, and the order of its stages.
//
// Input is a Config (from flags and a file, or made by a test); Run serves forwarding tables until its context ends:
//
//	API server ─► kube.Feed ─► compile.Compiler ─► table.Store ─► stream.Server ─► agents
//	     ▲             └─► publish.Publisher (the leader alone)          └─► observe.Observer
//	     └─────────────────────┘
//
// No stage knows another one; the adapters between them are here (pipeline.go, serve.go). Command reads the command line.
package app
