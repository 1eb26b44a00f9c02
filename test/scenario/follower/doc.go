// Package follower is an agent without a kernel: it follows one node's table over the real protocol, holds it and says that
// it is applied.
//
// Input are the address of a controller and the name of a node; output are the tables of package fwd, as they come. It
// is written from the specification in proto/fairlead/v1 and shares no code with the agent's own client, so that each
// finds the mistakes of the other. Its neighbour is package scenario.
package follower
