// Package stage sets up what a fan-out run needs on one machine: a network namespace, a real API server with etcd, Nodes, Services
// and Pods, real controllers as processes, and processes of simulated agents and of kube-proxy's watches.
//
// Input is a Config; output is a Stage that writes Pods' readiness, starts, stops and kills processes, and asks the children
// what they have seen. Nodes and Pods are what the API server holds: no kubelet and no kwok, because whoever would simulate
// them would spend the processor time that is to be measured, and a status patch of the driver tells when it was written.
// Its neighbours are packages swarm and watchers, which are the children, and measure.
package stage
