// Package compile turns Services, their endpoints and Nodes into the rows of forwarding tables, and says which node gets
// which row (SEMANTICS section 2).
//
// Input are informers' objects of Services and Nodes, which are read and never kept or changed, and the Endpoints that
// package endpoints derives. Output are fwd.Updates by audience, for package table, and Problems, for Events. A change
// costs what depends on it: a Service its own rows, a claim on a virtual IP the Services that claim it, a zone that comes
// or goes the Services with topology. Whatever the history, equal inputs give equal rows.
//
// service.go, addresses.go read a Service; claims.go decides who gets what is claimed twice; lists.go holds the rules of who
// uses which endpoint, pure functions all; node.go reads a Node; compiler.go and flush.go keep the state between changes.
package compile
