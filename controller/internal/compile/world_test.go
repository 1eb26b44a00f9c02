package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// world is the state of a small cluster whose objects get into each other's way: few addresses, ports, zones and ages.
type world struct {
	services map[string]*corev1.Service
	eps      map[string][]endpoints.Endpoint
	nodes    map[string]*corev1.Node
}

func newWorld() *world {
	return &world{services: map[string]*corev1.Service{}, eps: map[string][]endpoints.Endpoint{}, nodes: map[string]*corev1.Node{}}
}

// set gives a Compiler one object as it is in the world.
func (w *world) set(c *Compiler, name string) {
	svc, node := w.services[name], w.nodes[name]
	switch {
	case svc != nil:
		c.SetService(svc, w.eps[name])
	case node != nil:
		c.SetNode(node)
	case name[0] == 'n':
		c.DeleteNode(name)
	default:
		c.DeleteService("default", name)
	}
}

var (
	worldNodes    = []string{"n0", "n1", "n2", "n3"}
	worldServices = []string{"s0", "s1", "s2", "s3", "s4"}
)

type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 7))} }

func (g generator) one(in int) bool { return g.IntN(in) == 0 }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

// change changes one object of the world and returns its name.
func (g generator) change(w *world) string {
	if g.one(4) {
		name := pick(g, worldNodes...)
		w.nodes[name] = g.node(name)
		if g.one(3) {
			delete(w.nodes, name)
		}
		return name
	}
	name := pick(g, worldServices...)
	switch {
	case g.one(6):
		delete(w.services, name)
		delete(w.eps, name)
	case w.services[name] == nil || g.one(3):
		w.services[name], w.eps[name] = g.service(name), g.endpoints()
	default:
		w.eps[name] = g.endpoints()
	}
	return name
}

func (g generator) node(name string) *corev1.Node {
	n := nodeObject(name, pick(g, "a", "b", ""))
	n.Spec.PodCIDRs = pick(g, nil, []string{"10.244.1.0/24", "fd00:1::/64"})
	if g.one(3) {
		n.Spec.Taints = []corev1.Taint{{Key: TaintAutoscaler}}
	}
	return n
}

func (g generator) service(name string) *corev1.Service {
	i := int(name[1] - '0')
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(fmt.Sprintf("uid-%s-%d", name, g.IntN(2))), CreationTimestamp: metav1.Unix(int64(g.IntN(3)), 0),
	}}
	s := &svc.Spec
	s.ClusterIPs = []string{fmt.Sprintf("10.96.0.%d", i), fmt.Sprintf("fd96::%d", i)}[:1+g.IntN(2)]
	s.ClusterIP = pick(g, s.ClusterIPs[0], s.ClusterIPs[0], s.ClusterIPs[0], s.ClusterIPs[0], s.ClusterIPs[0], corev1.ClusterIPNone)
	for _, port := range []string{"p", "q"}[:1+g.IntN(2)] {
		sp := corev1.ServicePort{Name: port, Port: pick(g, int32(80), 81), Protocol: pick(g, corev1.ProtocolTCP, corev1.ProtocolUDP)}
		if g.one(3) {
			sp.NodePort = pick(g, int32(30000), 30001)
		}
		s.Ports = append(s.Ports, sp)
	}
	s.Type = pick(g, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer)
	if g.one(3) {
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if g.one(3) {
		internal(svc)
	}
	for range g.IntN(3) {
		s.ExternalIPs = append(s.ExternalIPs, g.address())
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: g.address()})
	}
	return svc
}

// address is one of a few that are virtual IPs, endpoints and cluster IPs alike.
func (g generator) address() string {
	return fmt.Sprintf(pick(g, "203.0.113.%d", "10.96.0.%d", "fd96::%d", "2001:db8::%d"), g.IntN(4))
}

func (g generator) endpoints() []endpoints.Endpoint {
	var eps []endpoints.Endpoint
	zonal, nodal := g.one(2), g.one(3)
	for range g.IntN(7) {
		e := endpoints.Endpoint{
			Node:  pick(g, "n0", "n1", "n2", "n3", "n9", ""),
			Ready: !g.one(3), Serving: !g.one(4), Terminating: g.one(4),
		}
		e.Addr = netip.MustParseAddr(pick(g, fmt.Sprintf("10.1.0.%d", g.IntN(8)), fmt.Sprintf("fd00::%d", g.IntN(8)), g.address()))
		for _, port := range []string{"p", "q"} {
			for _, protocol := range []fwd.Protocol{fwd.TCP, fwd.UDP} {
				if !g.one(4) {
					e.Ports = append(e.Ports, endpoints.Port{Name: port, Protocol: protocol, Port: pick(g, uint16(80), 8080)})
				}
			}
		}
		if zonal && !g.one(12) {
			e.HintZones = pick(g, []string{"a"}, []string{"b"}, []string{"a", "b"}, []string{"c"})
		}
		if nodal && !g.one(12) {
			e.HintNodes = []string{e.Node}
			if g.one(12) {
				e.HintNodes = []string{"n0", "n1"}
			}
		}
		eps = append(eps, e)
	}
	return eps
}
