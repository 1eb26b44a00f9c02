// Package kube is the controller's one subscription at the API server. It watches Services, Pods, Nodes, EndpointSlices and
// Endpoints, each once, keeps of them what is used, and hands what changed to a Sink.
//
// Input is the API server (through controller-runtime's cache); output are calls of Sink by a single goroutine, Feed.Run.
// "Synced" means drained: the first Commit comes after every handler has seen its first full list, and holds everything.
// Handlers only mark what is dirty; one round takes all that is dirty by then, so that a burst coalesces by itself and
// nothing waits behind a timer. Objects answers, by index, which Services select a Pod and which Pods a Service selects.
//
// Its neighbours are package endpoints, which computes a Service's endpoints from what is read here, and package publish,
// which reads the same Objects. Objects that are read here are shared with the cache: nobody may write to them.
package kube
