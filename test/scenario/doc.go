// Package scenario tests the controller, and agents of it, against a real kube-apiserver and a real etcd.
//
// Input are the files in testdata (package script says how to read them) and what the Go tests do: objects come, change and
// go in any order, programs and connections end at any time. What counts is the final state: the same tables on every
// follower, whatever the way, and nothing left when all is deleted. Everything runs in network namespaces that the test
// makes, so that neither the host nor a cluster beside it is touched; root is needed.
//
// Packages apiserver, follower and script are its parts. test/e2e shows the same with kubelets and traffic.
package scenario
