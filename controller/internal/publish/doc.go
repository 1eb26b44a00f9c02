// Package publish is the only writer at the API server: EndpointSlices and Endpoints objects of Services with a selector,
// slices that mirror the Endpoints of Services without one, Events, and the Lease that says which replica may write.
//
// Input are the objects that package kube holds (Reader) and the Services that changed (Publisher.Changed); output are
// writes through a client that Fence cuts off with the leadership. Writes have a queue, workers and a rate of their own:
// the tables never wait for them. The slices are made by the library k8s.io/endpointslice; the Endpoints objects (object.go,
// pack.go) and the mirrored slices (mirror.go) by pure functions here.
//
// Slices that another controller left for a Service are taken over in place, by changing their label managed-by: no
// endpoint is missing or counted twice at any time. If that controller turns out to run still, it is left alone, loudly:
// see rival.go.
package publish
