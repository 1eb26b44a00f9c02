package oracle

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/oracle/journey"
)

// Probe is one packet.
type Probe struct {
	// Client and Destination say in words who sends it and where to.
	Client, Destination string
	Packet              journey.Packet
	// Host is the node; a probe may give it addresses that interfaces do not have.
	Host journey.Host
	// Service is the name of the Service port behind Destination, "" for none; AffinitySeconds its time-out.
	Service         string
	AffinitySeconds uint32
}

// String returns a line for people.
func (p Probe) String() string {
	return fmt.Sprintf("%s (%v) to %s (%v/%v)", p.Client, p.Packet.Src, p.Destination,
		netip.AddrPortFrom(p.Packet.Dst, p.Packet.DPort), p.Packet.Protocol)
}

// client is who sends probes. Without a source the address is the destination's: a host that talks to itself.
type client struct {
	name   string
	device string
	src    netip.Addr
	owns   bool // the destination is an address of the node, whatever its interfaces say
}

// destination is where probes go.
type destination struct {
	name     string
	addr     netip.Addr
	port     uint16
	protocol fwd.Protocol
	service  string
	affinity uint32
	// few: only the first clients ask.
	few bool
	// sources are addresses behind the Service, which reach themselves.
	sources []client
}

// Probes are all packets of one family worth sending in a cluster.
func Probes(c *Cluster, family fwd.Family) []Probe {
	host := journey.Host{Addrs: c.Addrs()}
	var probes []Probe
	for _, d := range destinations(c, family) {
		who := clients(c, family)
		switch {
		case d.addr.IsLoopback():
			who = who[1:2] // the network carries no loopback addresses
		case d.few:
			who = who[:3]
		}
		if !d.addr.IsLoopback() {
			who = append(who, d.sources...)
		}
		for _, from := range who {
			probes = append(probes, probe(host, from, d))
		}
	}
	return append(probes, tracked(c, host, family)...)
}

func probe(host journey.Host, from client, d destination) Probe {
	if from.device == "" && (from.owns || host.Owns(d.addr)) {
		from.src = d.addr
	}
	if from.owns {
		host.Addrs = append(slices.Clone(host.Addrs), d.addr)
	}
	return Probe{
		Client: from.name, Destination: d.name, Host: host, Service: d.service, AffinitySeconds: d.affinity,
		Packet: journey.Packet{In: from.device, Src: from.src, Dst: d.addr, Protocol: d.protocol, DPort: d.port},
	}
}

// podIn is the device by which Pods of this node come in.
func podIn(c *Cluster) string {
	if c.Config.DetectLocal == "BridgeInterface" {
		return bridge
	}
	return podDevice
}

func clients(c *Cluster, f fwd.Family) []client {
	at := netip.MustParseAddr
	return []client{
		{name: "external host", device: nodeDevice, src: at(addr(f, "198.18.0.0", "2001:db8:c::", 5))},
		{name: "node", src: at(nodeAddr(f, 1))},
		{name: "local Pod", device: podIn(c), src: at(podAddr(f, 1, 240))},
		{name: "remote Pod", device: nodeDevice, src: at(podAddr(f, 2, 240))},
		{name: "other node", device: nodeDevice, src: at(nodeAddr(f, 2))},
		{name: "external host outside the ranges", device: nodeDevice, src: at(addr(f, "198.18.0.128", "2001:db8:c::100", 5))},
		{name: "node that owns the address", owns: true},
	}
}

// destinations are the virtual IPs and node ports of all Services, whoever's they are, and what lies beside them.
func destinations(c *Cluster, f fwd.Family) []destination {
	var all []destination
	for i := range c.Services {
		svc := &c.Services[i]
		sources := endpointClients(c, svc, f)
		for _, port := range svc.Spec.Ports {
			proto, err := fwd.ParseProtocol(string(port.Protocol))
			if err != nil {
				continue
			}
			name := fmt.Sprintf("%s/%s:%s/%v", svc.Namespace, svc.Name, port.Name, proto)
			d := destination{port: uint16(port.Port), protocol: proto, service: name, affinity: affinity(svc), sources: sources}
			add := func(kind string, few bool, addrs ...netip.Addr) {
				for _, a := range addrs {
					d.name, d.addr, d.few = kind+" of "+name, a, few
					all = append(all, d)
				}
			}
			add("cluster IP", false, addrsOf(f, svc.Spec.ClusterIPs...)...)
			add("external IP", false, addrsOf(f, svc.Spec.ExternalIPs...)...)
			for _, in := range svc.Status.LoadBalancer.Ingress {
				add("load-balancer IP", false, addrsOf(f, in.IP)...)
			}
			if port.NodePort != 0 {
				d.port = uint16(port.NodePort)
				add("node port", false, addrsOf(f, nodeAddr(f, 1))...)
				add("node port at another address", true, addrsOf(f, addr(f, "198.51.100.0", "fd00:d::", 1), podAddr(f, 1, 1))...)
				add("node port at loopback", true, addrsOf(f, "127.0.0.1", "::1")...)
				add("node port of another node", true, addrsOf(f, nodeAddr(f, 2))...)
				add("node port at the cluster IP", true, addrsOf(f, svc.Spec.ClusterIPs...)...)
			}
			d.service, d.affinity, d.sources = "", 0, nil
			d.port = uint16(port.Port)
			add("cluster IP of nobody", true, addrsOf(f, "10.96.200.1", "fd00:96::c801")...)
			d.port = 9
			add("no port", true, addrsOf(f, svc.Spec.ClusterIPs...)...)
			d.port, d.protocol = uint16(port.Port), fwd.Protocols()[(slices.Index(fwd.Protocols(), proto)+1)%3]
			add("another protocol", true, addrsOf(f, svc.Spec.ClusterIPs...)...)
			if svc.Spec.HealthCheckNodePort != 0 {
				d.port, d.protocol = uint16(svc.Spec.HealthCheckNodePort), fwd.TCP
				add("health check node port", false, addrsOf(f, nodeAddr(f, 1))...)
			}
		}
	}
	return all
}

func affinity(svc *corev1.Service) uint32 {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	return uint32(*svc.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds)
}

// endpointClients are some endpoints of a Service as clients: two Pods of this node, one elsewhere.
func endpointClients(c *Cluster, svc *corev1.Service, f fwd.Family) []client {
	var here, elsewhere []client
	for _, s := range c.slicesOf(svc) {
		for _, e := range s.Endpoints {
			for _, a := range addrsOf(f, e.Addresses[0]) {
				switch {
				case a.IsLoopback() || slices.Contains(c.Addrs(), a):
				case e.NodeName != nil && *e.NodeName == thisNode:
					here = append(here, client{name: "endpoint on this node", device: podIn(c), src: a})
				default:
					elsewhere = append(elsewhere, client{name: "endpoint elsewhere", device: nodeDevice, src: a})
				}
			}
		}
	}
	return append(here[:min(2, len(here))], elsewhere[:min(1, len(elsewhere))]...)
}

// tracked are packets of connections that exist, or that connection tracking does not understand, on their way back from a
// Pod.
func tracked(c *Cluster, host journey.Host, f fwd.Family) []Probe {
	var probes []Probe
	for _, state := range []journey.State{journey.Established, journey.Invalid} {
		from := clients(c, f)[2]
		p := probe(host, from, destination{name: "a client, as a reply", addr: clients(c, f)[0].src, port: 40000, protocol: fwd.TCP})
		p.Packet.State = state
		p.Client += ", " + string(state)
		probes = append(probes, p)
	}
	return probes
}
