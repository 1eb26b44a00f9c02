package main

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	sysctltesting "k8s.io/component-helpers/node/util/sysctl/testing"
	"k8s.io/kubernetes/pkg/proxy/apis"
	"k8s.io/kubernetes/pkg/proxy/conntrack"
	"k8s.io/kubernetes/pkg/proxy/healthcheck"
	"k8s.io/kubernetes/pkg/proxy/iptables"
	proxyutil "k8s.io/kubernetes/pkg/proxy/util"
	proxytesting "k8s.io/kubernetes/pkg/proxy/util/testing"
	netutils "k8s.io/utils/net"
)

// program gives both families' rules of one cluster.
func program(ctx context.Context, c *cluster) (rules, error) {
	v4, err := programFamily(ctx, c, corev1.IPv4Protocol)
	if err != nil {
		return rules{}, fmt.Errorf("IPv4: %w", err)
	}
	v6, err := programFamily(ctx, c, corev1.IPv6Protocol)
	if err != nil {
		return rules{}, fmt.Errorf("IPv6: %w", err)
	}
	return rules{IPv4: v4, IPv6: v6}, nil
}

// programFamily does what kube-proxy's start does: a proxier of one family hears of the node, then of every object its
// informers let through, then that this was all.
func programFamily(ctx context.Context, c *cluster, family corev1.IPFamily) (string, error) {
	recorder := newRecorder(family)
	sysctl := sysctltesting.NewFake()
	if c.Config.ConntrackLiberal {
		sysctl.Settings["net/netfilter/nf_conntrack_tcp_be_liberal"] = 1
	}
	localhost := c.Config.LocalhostNodePorts && family == corev1.IPv4Protocol
	// The rules are written once, when the objects are complete; the periods do not matter.
	p, err := iptables.NewProxier(ctx, family, recorder, sysctl, time.Minute, time.Second,
		c.Config.MasqueradeAll, localhost, c.Config.MasqueradeBit, detector(c, family), c.Node.Name, nodeIP(&c.Node, family),
		events.NewFakeRecorder(1), nil, c.Config.NodePortAddresses, false)
	if err != nil {
		return "", fmt.Errorf("make proxier: %w", err)
	}
	if err := detach(p, c.Interfaces); err != nil {
		return "", err
	}
	topology := map[string]string{}
	if zone, ok := c.Node.Labels[corev1.LabelTopologyZone]; ok {
		topology[corev1.LabelTopologyZone] = zone
	}
	p.OnTopologyChange(topology)
	// The two label filters are those of kube-proxy's informers.
	for i := range c.Services {
		if _, other := c.Services[i].Labels[apis.LabelServiceProxyName]; !other {
			p.OnServiceAdd(&c.Services[i])
		}
	}
	for i := range c.EndpointSlices {
		if _, headless := c.EndpointSlices[i].Labels[corev1.IsHeadlessService]; !headless {
			p.OnEndpointSliceAdd(&c.EndpointSlices[i])
		}
	}
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	return recorder.save()
}

// detach replaces what would reach into this machine (conntrack, nfacct, listeners for health checks, interfaces) by
// kube-proxy's own fakes. It has no seam for them outside its package, hence the way around the compiler: a version that
// renames a field fails here and not silently.
func detach(p *iptables.Proxier, interfaces []string) error {
	network := proxytesting.NewFakeNetwork()
	var addrs []net.Addr
	for _, cidr := range interfaces {
		ip, prefix, err := netutils.ParseCIDRSloppy(cidr)
		if err != nil {
			return fmt.Errorf("interfaces: %w", err)
		}
		addrs = append(addrs, &net.IPNet{IP: ip, Mask: prefix.Mask})
	}
	network.AddInterfaceAddr(&net.Interface{Index: 1, Name: "eth0"}, addrs)
	for name, value := range map[string]any{
		"conntrack":           conntrack.NewFake(),
		"serviceHealthServer": healthcheck.NewFakeServiceHealthServer(),
		"networkInterfacer":   network,
		"nfacct":              nil,
	} {
		field := reflect.ValueOf(p).Elem().FieldByName(name)
		if !field.IsValid() {
			return fmt.Errorf("detach proxier: it has no field %s any more", name)
		}
		field = reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
		if value == nil {
			field.SetZero()
			continue
		}
		field.Set(reflect.ValueOf(value))
	}
	return nil
}

// detector is kube-proxy's choice of how Pods of this node are told from others.
func detector(c *cluster, family corev1.IPFamily) proxyutil.LocalTrafficDetector {
	byCIDR := func(cidrs []string) proxyutil.LocalTrafficDetector {
		if of := proxyutil.MapCIDRsByIPFamily(cidrs)[family]; len(of) > 0 {
			return proxyutil.NewDetectLocalByCIDR(of[0].String())
		}
		return proxyutil.NewNoOpLocalDetector()
	}
	switch c.Config.DetectLocal {
	case "ClusterCIDR":
		return byCIDR(c.Config.ClusterCIDRs)
	case "NodeCIDR":
		return byCIDR(c.Node.Spec.PodCIDRs)
	case "BridgeInterface":
		return proxyutil.NewDetectLocalByBridgeInterface(c.Config.BridgeInterface)
	case "InterfaceNamePrefix":
		return proxyutil.NewDetectLocalByInterfaceNamePrefix(c.Config.InterfaceNamePrefix)
	}
	return proxyutil.NewNoOpLocalDetector()
}

// nodeIP is the Node's first InternalIP of a family, or where it has none the unspecified address of that family.
func nodeIP(node *corev1.Node, family corev1.IPFamily) net.IP {
	for _, a := range node.Status.Addresses {
		if ip := netutils.ParseIPSloppy(a.Address); a.Type == corev1.NodeInternalIP && proxyutil.GetIPFamilyFromIP(ip) == family {
			return ip
		}
	}
	if family == corev1.IPv6Protocol {
		return net.IPv6zero
	}
	return net.IPv4zero
}
