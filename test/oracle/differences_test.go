package oracle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/test/cluster/binaries"
)

// plain is a cluster with one Service "web" that has all kinds of addresses, and one ready endpoint on each node.
func plain() *Cluster {
	c := &Cluster{}
	node := func(name, v4, v6 string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: v4}, {Type: corev1.NodeInternalIP, Address: v6},
		}}}
	}
	c.Node = node(thisNode, "192.0.2.1", "fd00:c::1")
	c.OtherNodes = []corev1.Node{node("node-2", "192.0.2.2", "fd00:c::2")}
	c.Interfaces = []string{"192.0.2.1/24", "198.51.100.1/24", "10.244.1.1/24", "fd00:c::1/64"}
	c.Config = Config{
		DetectLocal: "ClusterCIDR", ClusterCIDRs: []string{"10.244.0.0/16"}, MasqueradeBit: 14,
		AllowedExternalIPs: []string{"203.0.113.0/25"},
	}
	c.Services = []corev1.Service{web("web", "10.96.0.10", 30080)}
	c.EndpointSlices = []discoveryv1.EndpointSlice{webSlice("web", "10.244.1.5", "10.244.2.5")}
	return c
}

// web is a Service of TCP port 80.
func web(name, clusterIP string, nodePort int32) corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-1"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: clusterIP, ClusterIPs: []string{clusterIP},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, ExternalIPs: []string{"203.0.113.1"},
			Ports:                 []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: nodePort}},
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster, SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
}

// balance makes a Service one of type LoadBalancer.
func balance(svc *corev1.Service, ips ...string) {
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	for _, ip := range ips {
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
}

// webSlice has endpoints at port 8080: the first one on this node, the second on the other.
func webSlice(name string, addrs ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr[int32](8080)}},
	}
	for i, a := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, NodeName: ptr([]string{thisNode, "node-2"}[i])})
	}
	return s
}

// cases are, by the difference, what to change in the plain cluster for it to show.
func cases() map[string]func(*Cluster) {
	return map[string]func(*Cluster){
		"Endpoints that reach into the node are refused": func(c *Cluster) {
			c.EndpointSlices[0].Endpoints[1].Addresses[0] = "169.254.169.254"
		},
		"Endpoints that are a virtual IP are refused": func(c *Cluster) {
			c.EndpointSlices[0].Endpoints[1].Addresses[0] = "10.96.0.10"
			c.EndpointSlices[0].Ports[0].Port = ptr[int32](80)
		},
		"Virtual IPs that reach into the node are refused": func(c *Cluster) {
			balance(&c.Services[0], "127.0.0.7")
		},
		"Source ranges that cannot be read let nobody in": func(c *Cluster) {
			balance(&c.Services[0], "203.0.113.9")
			c.Services[0].Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/33", "fd00::/8"}
		},
		"A Service has at most 1,000 ports": func(c *Cluster) {
			many := web("many", "10.96.0.12", 0)
			many.Spec.Type, many.Spec.ExternalIPs = corev1.ServiceTypeClusterIP, nil
			many.Spec.Ports = nil
			for i := range int32(1001) {
				many.Spec.Ports = append(many.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Protocol: corev1.ProtocolTCP, Port: 1000 + i})
			}
			c.Services = []corev1.Service{many}
		},
		"Hints for foreign nodes do not mix with a policy Local": func(c *Cluster) {
			c.Services[0].Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			for i := range c.EndpointSlices[0].Endpoints {
				c.EndpointSlices[0].Endpoints[i].Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: []string{"node-2", thisNode}[i]}}}
			}
		},
		"External IPs have to be allowed": func(c *Cluster) {
			c.Services[0].Spec.ExternalIPs = []string{"203.0.113.1", "203.0.113.200"}
		},
		"A virtual IP that is claimed twice has one owner": func(c *Cluster) {
			c.Services = append(c.Services, web("later", "10.96.0.11", 30081))
			c.Services[1].UID = "uid-2"
			c.EndpointSlices = append(c.EndpointSlices, webSlice("later", "10.244.1.6"))
			// A cluster IP as the external IP of another Service, which kube-proxy would forward to either of the two.
			c.Services[0].Spec.ExternalIPs, c.Services[1].Spec.ExternalIPs = nil, []string{"10.96.0.10"}
			c.Config.AllowedExternalIPs = []string{"10.96.0.0/16"}
			c.EndpointSlices[0].Endpoints = nil
		},
		"Node ports do not answer at loopback addresses": func(c *Cluster) { c.Config.LocalhostNodePorts = true },
		"Node ports refuse only where they would answer": func(c *Cluster) {
			c.Config.NodePortAddresses = []string{"192.0.2.0/24"}
			c.EndpointSlices[0].Endpoints = nil
		},
		"nftables mode: node ports answer at the node's primary addresses": func(*Cluster) {},
		"nftables mode: nothing is accepted on behalf of other tables":     func(*Cluster) {},
		"nftables mode: a cluster IP refuses what is no Service port":      func(*Cluster) {},
		"nftables mode: what is for a cluster IP of nobody is dropped":     func(c *Cluster) { c.Config.ServiceCIDRs = []string{"10.96.0.0/16"} },
	}
}

// TestDifferences shows each difference: the two sides differ without it, and agree with it.
func TestDifferences(t *testing.T) {
	c := newContest(t, kubeProxyTool(t))
	all := c.differences
	if m, err := c.mismatches(t.Context(), plain()); err != nil || len(m) > 0 {
		t.Fatalf("the plain cluster: %v, error %v: want no mismatch", m, err)
	}
	for i, d := range all {
		t.Run(d.Name, func(t *testing.T) {
			change, ok := cases()[d.Name]
			if !ok {
				t.Fatal("no case for this difference")
			}
			cluster := plain()
			change(cluster)
			c.differences = slices.Delete(slices.Clone(all), i, i+1)
			if m, err := c.mismatches(t.Context(), cluster); err != nil || len(m) == 0 {
				t.Errorf("without the difference: %d mismatches, error %v: want some, or the difference is none", len(m), err)
			}
			c.differences = all
			if m, err := c.mismatches(t.Context(), cluster); err != nil || len(m) > 0 {
				t.Errorf("with the difference: %v, error %v: want no mismatch", m, err)
			}
		})
	}
}

// TestDifferencesAreDocumented holds docs/differences.md and the list together, both ways.
func TestDifferencesAreDocumented(t *testing.T) {
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "differences.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, checked, _ := strings.Cut(string(text), "\n## ")
	checked, _, _ = strings.Cut(checked, "\n## ")
	var sections, listed []string
	for line := range strings.Lines(checked) {
		if name, ok := strings.CutPrefix(line, "### "); ok {
			sections = append(sections, strings.TrimSpace(name))
		}
	}
	for _, d := range Differences() {
		listed = append(listed, d.Name)
	}
	slices.Sort(sections)
	slices.Sort(listed)
	if !slices.Equal(sections, listed) {
		t.Errorf("docs/differences.md has\n%s\nthe list of differences has\n%s", strings.Join(sections, "\n"), strings.Join(listed, "\n"))
	}
	if names := slices.Sorted(maps.Keys(cases())); !slices.Equal(names, listed) {
		t.Errorf("cases are\n%s\nthe list of differences is\n%s", strings.Join(names, "\n"), strings.Join(listed, "\n"))
	}
}
