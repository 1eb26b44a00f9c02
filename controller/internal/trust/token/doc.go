// Package token decides whether a caller is the agent of a node, by the ServiceAccount token that it presents.
//
// Input is a call's metadata and the name of the node whose table it asks for; output is nil or a gRPC status that says
// why not, and nothing else. A token must have been issued by this cluster's API server for our audience, to the agents'
// ServiceAccount, bound to a Pod that exists on that very node (KEP-1205, KEP-4193). What can be checked without a
// signature is checked first, so that nonsense costs neither keys nor requests.
//
// gate.go joins the checks; claims.go reads a token; keys.go verifies signatures by the API server's public keys,
// review.go by asking the API server instead. Package stream calls the Gate in its handler; package app makes it.
package token
