// Package workload is both ends of the test bed's traffic: a server whose readiness a
// test turns, and a client that opens a new connection for each request and never
// tries again.
//
// Input: connections, or a target and a rate. Output: replies that name the Pod that
// gave them, or Samples, one JSON line each. Command test/cmd/workload makes it one
// static program that runs in a Pod and on a node; package cluster puts it in an image.
package workload
