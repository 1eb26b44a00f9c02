// Package cluster runs a real dual-stack Kubernetes cluster on one Debian machine,
// with neither kube-proxy nor the endpoint controllers: those are what Fairlead is.
//
// Input: a Config. Output: a Cluster with an admin client, kubeconfigs for any user,
// and its Nodes. The control plane (etcd, API server, controller manager, scheduler)
// runs on the host at an address of its own. A node is a network, mount and host name
// namespace with its own containerd, kubelet, /run, /var/lib and /var/log; it lasts as
// long as its anchor, a process that sleeps; an IPVS node is a user-mode Linux kernel
// on a tap device, with neither of both. The nodes' devices meet in a bridge
// inside one more namespace (the hub), so that the host's packet filter sees none of
// their traffic. Addresses follow from the cluster's index alone, so clusters with
// different indices run side by side. Everything made is recorded in a footprint
// first, from which Remove clears up, whatever happened in between.
//
// Package binaries builds what runs here, package image what runs in Pods.
package cluster
