// Package apiserver runs a real etcd and a real kube-apiserver for scenarios, without kubelets and without controllers: what
// exists is what a test writes, Pods' and Nodes' status included.
//
// Input is a Config with a folder and an address of this network namespace; output is a Server with an administrator's
// client, kubeconfigs for other users, and an audit log for package audit. The processes end with the test, also when it
// is killed. Its neighbour is package scenario; test/cluster runs the same programs with nodes around them.
package apiserver
