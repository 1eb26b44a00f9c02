package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/web"
	"github.com/fairlead/fairlead/test/workload"
)

// cast is the Pods that tests of single rules share: one and two serve, on the first and the second node, beside one and
// apart on the third node are behind no Service and only ask.
type cast struct{ one, two, beside, apart *core.Pod }

// Labels of the Pods that serve: of both, and of each.
const (
	troupe = "troupe"
	role   = "role"
)

func enlist(ctx context.Context, c *cluster.Cluster) (*cast, error) {
	var all cast
	for _, pod := range []struct {
		into   **core.Pod
		name   string
		node   int
		labels map[string]string
	}{
		{&all.one, "one", 0, map[string]string{troupe: "a", role: "one"}},
		{&all.two, "two", 1, map[string]string{troupe: "a", role: "two"}},
		{&all.beside, "beside", 0, nil},
		{&all.apart, "apart", 2, nil},
	} {
		var err error
		if *pod.into, err = web.StartPod(ctx, c.Client, web.PodConfig{Name: pod.name, Node: c.Nodes[pod.node].Name, Labels: pod.labels}); err != nil {
			return nil, fmt.Errorf("enlist: %w", err)
		}
	}
	return &all, nil
}

// insiders are clients in the cluster, on the node that has a Pod of every test's Service and on the one that has none.
func insiders() []client {
	nodes := bed.Cluster.Nodes
	return []client{inPod(bed.beside), inPod(bed.apart), onNode(nodes[0]), onNode(nodes[2])}
}

// families are the two families, as indices into pairs of addresses.
func families() map[string]int { return map[string]int{"IPv4": 0, "IPv6": 1} }

// protocols are those that a Service of mount has.
func protocols() []string { return []string{workload.TCP, workload.UDP} }

const stagePort = 7000

// allowedExternal are the ranges that externals come from.
const allowedExternal = "198.19.0.0/16,fdf1:1ead::/32"

// externals are two addresses, one of each family, that belong to nobody; different numbers give different ones. They
// hold the index of the cluster, so that clusters on one machine stay apart.
func externals(number byte) []netip.Addr {
	host := bed.Cluster.APIServerIPs()
	v4, v6 := host[0].As4(), host[1].As16()
	v4[1], v4[3] = 19, number
	v6[7], v6[15] = 0xff, number
	return []netip.Addr{netip.AddrFrom4(v4), netip.AddrFrom16(v6)}
}

// route leads the host's packets for two addresses, one of each family, to a node, until the test ends or it is called again.
func route(t *testing.T, n *cluster.Node, addrs ...netip.Addr) {
	t.Helper()
	for family, addr := range addrs {
		prefix := netip.PrefixFrom(addr, addr.BitLen()).String()
		version := []string{"-4", "-6"}[family]
		ip(t.Context(), t, version, "route", "replace", prefix, "via", n.IPs[family].String())
		// flush, unlike delete, does not mind that an earlier call's route is gone.
		t.Cleanup(func() { ip(context.WithoutCancel(t.Context()), t, version, "route", "flush", prefix) })
	}
}

func ip(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %v: %v: %s", args, err, out)
	}
}

// mounted is a Service on stage.
type mounted struct{ *core.Service }

// mount makes a dual-stack Service in front of both Pods that serve, over TCP and UDP, as changed by change, and removes
// it when the test ends.
func mount(t *testing.T, name string, change func(*core.ServiceSpec)) mounted {
	t.Helper()
	both := core.IPFamilyPolicyRequireDualStack
	svc := &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec: core.ServiceSpec{
			Selector: map[string]string{troupe: "a"}, IPFamilyPolicy: &both,
			IPFamilies: []core.IPFamily{core.IPv4Protocol, core.IPv6Protocol},
			Ports: []core.ServicePort{
				{Name: "tcp", Port: stagePort, TargetPort: intstr.FromInt32(web.EchoPort)},
				{Name: "udp", Port: stagePort, TargetPort: intstr.FromInt32(web.EchoPort), Protocol: core.ProtocolUDP},
			},
		},
	}
	change(&svc.Spec)
	services := bed.Cluster.Client.CoreV1().Services(web.Namespace)
	svc, err := services.Create(t.Context(), svc, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := services.Delete(context.WithoutCancel(t.Context()), name, meta.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return mounted{svc}
}

// change changes the Service's spec.
func (m mounted) change(t *testing.T, change func(*core.ServiceSpec)) {
	t.Helper()
	services := bed.Cluster.Client.CoreV1().Services(web.Namespace)
	svc, err := services.Get(t.Context(), m.Name, meta.GetOptions{})
	if err == nil {
		change(&svc.Spec)
		_, err = services.Update(t.Context(), svc, meta.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// balance gives the Service load-balancer IPs, as a cloud's controller does.
func (m mounted) balance(t *testing.T, ingress ...core.LoadBalancerIngress) {
	t.Helper()
	m.Status.LoadBalancer.Ingress = ingress
	_, err := bed.Cluster.Client.CoreV1().Services(web.Namespace).UpdateStatus(t.Context(), m.Service, meta.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// vips are load-balancer IPs that nodes take for their own.
func vips(addrs ...netip.Addr) []core.LoadBalancerIngress {
	return ingresses(core.LoadBalancerIPModeVIP, addrs)
}

func ingresses(mode core.LoadBalancerIPMode, addrs []netip.Addr) []core.LoadBalancerIngress {
	var all []core.LoadBalancerIngress
	for _, addr := range addrs {
		all = append(all, core.LoadBalancerIngress{IP: addr.String(), IPMode: &mode})
	}
	return all
}

// clusterIP is the Service's own address of a family.
func (m mounted) clusterIP(family int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(m.Spec.ClusterIPs[family]), stagePort)
}

// nodePort is the Service's port on a node.
func (m mounted) nodePort(n *cluster.Node, family int, protocol string) netip.AddrPort {
	for _, port := range m.Spec.Ports {
		if port.Name == protocol {
			return netip.AddrPortFrom(n.IPs[family], uint16(port.NodePort))
		}
	}
	return netip.AddrPort{}
}

func at(addr netip.Addr) netip.AddrPort { return netip.AddrPortFrom(addr, stagePort) }
