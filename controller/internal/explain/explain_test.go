package explain_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/controller/internal/compile"
	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/controller/internal/explain"
	"github.com/fairlead/fairlead/proto/fwd"
)

func zones() map[string]string { return map[string]string{"n1": "a", "n2": "b", "n3": ""} }

// tableOf compiles the table of a node.
func tableOf(t *testing.T, svc *corev1.Service, eps []endpoints.Endpoint, node string) *fwd.Table {
	t.Helper()
	c := compile.New(compile.Config{})
	for name, zone := range zones() {
		c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}})
	}
	slices.SortFunc(eps, endpoints.Compare)
	c.SetService(svc, eps)
	parts := map[fwd.Scope]*fwd.Part{}
	for _, u := range c.Flush().Updates {
		if slices.Contains([]fwd.Audience{{Scope: fwd.Common}, {Scope: fwd.Zone, Name: zones()[node]}, {Scope: fwd.Node, Name: node}}, u.Audience) {
			parts[u.Scope] = (&fwd.Part{}).With(u.Remove, u.Put)
		}
	}
	table, err := fwd.NewTable(parts)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func service(change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
		},
	}
	change(&s.Spec)
	return s
}

func endpoint(n int, node string, change func(*endpoints.Endpoint)) endpoints.Endpoint {
	e := endpoints.Endpoint{
		Addr: netip.AddrFrom4([4]byte{10, 244, 0, byte(n)}), Ports: []endpoints.Port{{Name: "http", Protocol: fwd.TCP, Port: 8080}},
		Node: node, Zone: zones()[node], Ready: true, Serving: true,
	}
	change(&e)
	return e
}

// TestEverythingHasAReason: of whatever Service, every membership that a table shows is explained by the endpoints that it was
// made of.
func TestEverythingHasAReason(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	some := func(of int) bool { return g.IntN(of) == 0 }
	seen := map[string]int{}
	for range 3000 {
		svc := service(func(s *corev1.ServiceSpec) {
			if some(3) {
				s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			}
			if some(3) {
				local := corev1.ServiceInternalTrafficPolicyLocal
				s.InternalTrafficPolicy = &local
			}
			if some(4) {
				s.Type, s.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0
			}
		})
		terminating, hinted, hintedNodes := some(2), some(2), some(2)
		var eps []endpoints.Endpoint
		for n := range g.IntN(6) {
			node := []string{"n1", "n2", "n3", ""}[g.IntN(4)]
			eps = append(eps, endpoint(n, node, func(e *endpoints.Endpoint) {
				e.Terminating = terminating || some(4)
				e.Serving = !some(4)
				e.Ready = e.Serving && !e.Terminating
				if hinted && !some(10) {
					e.HintZones = []string{[]string{"a", "b", "c"}[g.IntN(3)]}
				}
				if hintedNodes && node != "" && !some(10) {
					e.HintNodes = []string{node}
				}
			}))
		}
		node := []string{"n1", "n2", "n3"}[g.IntN(3)]
		table := tableOf(t, svc, eps, node)
		a := explain.Explain(explain.Input{Namespace: "default", Service: "web", Node: node, Zone: zones()[node], Endpoints: eps, Table: table})
		for _, p := range a.Ports {
			for _, e := range p.Endpoints {
				seen[e.Cluster.Why]++
				seen[e.Local.Why]++
			}
		}
		if text := fmt.Sprint(a); strings.Contains(text, "should be otherwise") || len(a.Ports) != 1 || len(a.Ports[0].Endpoints) != len(eps) {
			t.Fatalf("unexplained: %+v of %+v", a, eps)
		}
	}
	if len(seen) < 20 {
		t.Errorf("%d reasons only: %v", len(seen), seen)
	}
}

// TestWrite holds the words, and that a table that does not follow from the endpoints is not explained away.
func TestWrite(t *testing.T) {
	svc := service(func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	zone := func(zone string) func(*endpoints.Endpoint) {
		return func(e *endpoints.Endpoint) { e.HintZones = []string{zone} }
	}
	eps := []endpoints.Endpoint{
		endpoint(1, "n1", zone("a")), endpoint(2, "n2", zone("b")),
		endpoint(3, "n1", func(e *endpoints.Endpoint) { e.Ready, e.Terminating = false, true }),
		endpoint(4, "n2", func(e *endpoints.Endpoint) { e.Ready, e.Serving = false, false }),
	}
	in := explain.Input{
		Namespace: "default", Service: "web", Node: "n1", Zone: "a", Endpoints: eps, Table: tableOf(t, svc, eps, "n1"),
		Problems: []endpoints.Problem{{Reason: "InvalidEndpointPort", Message: "no"}},
	}
	var b strings.Builder
	if err := explain.Explain(in).Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `default/web on node n1, zone "a"

default/web:http/TCP/IPv4
  cluster list  that of zone "a": all ready endpoints are hinted to zones
  local list    for clients from outside (externalTrafficPolicy Local)

  ENDPOINT         NODE  ZONE  STATE                 HINTS    CLUSTER LIST                                            LOCAL LIST
  10.244.0.1:8080  n1    a     ready                 zones a  in: ready, hinted to this zone                          in: ready, on this node
  10.244.0.2:8080  n2    b     ready                 zones b  out: hinted to zones b, and others to this node or its zone  out: on node n2
  10.244.0.3:8080  n1    a     terminating, serving  -        out: terminating, and others are ready                  out: terminating, and others are ready
  10.244.0.4:8080  n2    b     not ready             -        out: not ready                                          out: on node n2

problem: InvalidEndpointPort: no
`
	squeeze := func(s string) string {
		lines := strings.Split(s, "\n")
		for i := range lines {
			lines[i] = strings.Join(strings.Fields(lines[i]), " ")
		}
		return strings.Join(lines, "\n")
	}
	if d := cmp.Diff(squeeze(want), squeeze(b.String())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	in.Endpoints[0].Ready, in.Endpoints[0].Serving = false, false // the table has not heard of it yet
	if a := explain.Explain(in); !strings.Contains(a.Ports[0].Endpoints[0].Cluster.Why, "should be otherwise") {
		t.Errorf("%+v", a.Ports[0].Endpoints[0])
	}
	in.Table = &fwd.Table{}
	b.Reset()
	if err := explain.Explain(in).Write(&b); err != nil || !strings.Contains(b.String(), "no port of it is in the node's table") {
		t.Errorf("%s, %v", &b, err)
	}
}
