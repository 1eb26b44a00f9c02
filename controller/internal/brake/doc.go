// Package brake holds mass removals back until a fresh list from the API server confirms them: what is computed centrally
// can fail centrally, and a lost watch event or a cache that went empty must not empty every node's tables.
//
// Input are the calls of a kube.Feed, whose Sink a Brake is; output are the same calls to the next Sink, in the same order,
// with endpoints and Services left in place that would have gone too many at once. Additions, and whatever else changes,
// are not held. Removals within the allowance pass without delay. What is held is looked up in a list that the API server
// answers from its storage, not from a cache, and goes at once if it is not there either; nothing is held longer.
//
// hold.go is pure: what is lost, what is allowed; brake.go is the Sink; confirm.go asks. What the node lifecycle
// controller alone asserts is another matter, which package kube holds back.
package brake
