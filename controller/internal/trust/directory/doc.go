// Package directory keeps the few objects up to date by which agents and replicas find and trust each other: the ConfigMap
// fairlead-controllers, which agents read (the CA bundle, the replicas, the API servers' addresses), the Secret
// fairlead-ca, and one Lease for each replica that serves agents. It also reads the owner's orders, to freeze or to roll
// back the tables, which are annotations of the ConfigMap.
//
// Input is the API server, polled; no watch, since nothing here changes more than once in minutes. Output are calls of
// Config's functions. Every replica reads, and renews its own Lease; the leader alone writes the rest (ADR 3). The CA
// itself is package authority's; app joins both with the stream.
package directory
