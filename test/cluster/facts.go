package cluster

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/test/cluster/footprint"
)

// Node returns the node of that name, nil if there is none.
func (c *Cluster) Node(name string) *Node {
	for _, node := range c.Nodes {
		if node.Name == name {
			return node
		}
	}
	return nil
}

// NetworkNamespace is the path of the node's network namespace; empty for a node with a kernel of its own.
func (n *Node) NetworkNamespace() string {
	if n.namespace == "" {
		return ""
	}
	return footprint.NamespacePath(n.namespace)
}

// AdminKubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) AdminKubeconfig() string { return c.files.admin() }

// AuditLog is the path of the API server's log of requests: a JSON object a line.
func (c *Cluster) AuditLog() string { return c.files.audit() }

// Kubectl is the path of a kubectl of the cluster's version.
func (c *Cluster) Kubectl() string { return c.bins["kubectl"] }

// Binary is the path of one of the cluster's executables, such as kube-proxy.
func (c *Cluster) Binary(name string) string { return c.bins[name] }

// Logs is the folder with a log per program.
func (c *Cluster) Logs() string { return c.files.logs() }

// Dir is the cluster's folder; it is visible on every node under the same path.
func (c *Cluster) Dir() string { return c.cfg.Dir }

// APIServerIPs are the host's addresses for the API server, IPv4 first.
func (c *Cluster) APIServerIPs() []netip.Addr { return c.plan.apiServer() }

// ControllerIPs are the host's addresses for programs of the product, IPv4 first. The
// nodes' own traffic with the API server does not use them; see Node.Cut.
func (c *Cluster) ControllerIPs() []netip.Addr { return c.plan.controller() }

// HostIPs are all addresses of the host on the nodes' network, sorted by use and then by family: any of them may be the
// source of what a program on the host sends.
func (c *Cluster) HostIPs() []netip.Addr {
	return slices.Concat(c.plan.apiServer(), c.plan.controller(), c.plan.testBed())
}

// PodCIDRs are the ranges of all Pods, IPv4 first.
func (c *Cluster) PodCIDRs() []netip.Prefix { return c.plan.pods() }

// ServiceCIDRs are the ranges of Services' virtual addresses, IPv4 first.
func (c *Cluster) ServiceCIDRs() []netip.Prefix { return c.plan.services() }

// DNSIPs are the virtual addresses of cluster DNS, IPv4 first.
func (c *Cluster) DNSIPs() []netip.Addr { return c.plan.dns() }
