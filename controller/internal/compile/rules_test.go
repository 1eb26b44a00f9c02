package compile

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
)

const plain = "service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80"

// TestListRules has a case for each rule of who uses which endpoint, seen from node n1 in zone a.
func TestListRules(t *testing.T) {
	for _, c := range []struct {
		name string
		svc  *corev1.Service
		eps  []endpoints.Endpoint
		want []string
	}{
		{
			"2.1 ready ones", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1"), endpoint("10.1.0.2", "n2"), endpoint("10.1.0.3", "n1", unready), endpoint("10.1.0.4", "n1", draining)},
			[]string{plain + " usable", "  common 10.1.0.1:8080", "  common 10.1.0.2:8080"},
		},
		{
			"2.1 none ready: serving and terminating", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.3", "n1", unready), endpoint("10.1.0.4", "n1", draining)},
			[]string{plain + " usable", "  common 10.1.0.4:8080 draining"},
		},
		{
			"2.1 terminating and not serving is no fallback", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.3", "n1", draining, unready)},
			[]string{plain},
		},
		{
			"2.1 the local list falls back by itself", web(internal, nodePort(30080)),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", draining), endpoint("10.1.0.2", "n2")},
			[]string{plain + " node-port=30080 internal-local usable", "  common 10.1.0.2:8080", "  node 10.1.0.1:8080 draining"},
		},

		{
			"2.2 zone hints", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", zoneHint("a")), endpoint("10.1.0.2", "n2", zoneHint("b")), endpoint("10.1.0.3", "n2", zoneHint("a", "b"))},
			[]string{plain + " cluster-scope=zone usable", "  zone 10.1.0.1:8080", "  zone 10.1.0.3:8080"},
		},
		{
			"2.2 a ready endpoint without a hint", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", zoneHint("a")), endpoint("10.1.0.2", "n2")},
			[]string{plain + " usable", "  common 10.1.0.1:8080", "  common 10.1.0.2:8080"},
		},
		{
			"2.2 endpoints that are not ready need no hint", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", zoneHint("a")), endpoint("10.1.0.2", "n2", unready), endpoint("10.1.0.3", "n2", zoneHint("b"))},
			[]string{plain + " cluster-scope=zone usable", "  zone 10.1.0.1:8080"},
		},
		{
			"2.2 no hint matches", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", zoneHint("b")), endpoint("10.1.0.2", "n2", zoneHint("c"))},
			[]string{plain + " cluster-scope=zone usable", "  zone 10.1.0.1:8080", "  zone 10.1.0.2:8080"},
		},
		{
			"2.2 topology before fallback", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", zoneHint("a"), draining), endpoint("10.1.0.2", "n2", zoneHint("b"))},
			[]string{plain + " cluster-scope=zone usable", "  zone 10.1.0.2:8080"},
		},
		{
			"2.2 no topology in the fallback", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", zoneHint("a"), draining), endpoint("10.1.0.2", "n2", zoneHint("b"), draining)},
			[]string{plain + " usable", "  common 10.1.0.1:8080 draining", "  common 10.1.0.2:8080 draining"},
		},
		{
			"2.2 node hints", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", zoneHint("a"), nodeHint("n1")), endpoint("10.1.0.2", "n4", zoneHint("a"), nodeHint("n4"))},
			[]string{plain + " cluster-scope=node usable", "  zone 10.1.0.1:8080", "  zone 10.1.0.2:8080", "  node 10.1.0.1:8080"},
		},
		{
			"2.2 no node hint matches", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n4", zoneHint("a"), nodeHint("n4")), endpoint("10.1.0.2", "n2", zoneHint("b"), nodeHint("n2"))},
			[]string{plain + " cluster-scope=node usable", "  zone 10.1.0.1:8080"},
		},
		{
			"2.2 node hints count alone", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", nodeHint("n1")), endpoint("10.1.0.2", "n2", nodeHint("n2"))},
			[]string{plain + " cluster-scope=node usable", "  zone 10.1.0.1:8080", "  zone 10.1.0.2:8080", "  node 10.1.0.1:8080"},
		},
		{
			"2.2 a hint for another node", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.2", "n2", nodeHint("n1"))},
			[]string{plain + " cluster-scope=node usable", "  zone 10.1.0.2:8080", "  node 10.1.0.2:8080"},
		},
		{
			"2.2 a hint for another node does not reach the local list", web(internal, nodePort(30080)),
			[]endpoints.Endpoint{endpoint("10.1.0.2", "n2", nodeHint("n1"))},
			[]string{plain + " node-port=30080 internal-local usable", "  common 10.1.0.2:8080"},
		},

		{
			"2.3 internal policy", web(internal),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1"), endpoint("10.1.0.2", "n2")},
			[]string{plain + " internal-local usable", "  node 10.1.0.1:8080"},
		},
		{
			"2.3 external policy", web(nodePort(30080), external),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1"), endpoint("10.1.0.2", "n2")},
			[]string{plain + " node-port=30080 external-local usable", "  common 10.1.0.1:8080", "  common 10.1.0.2:8080", "  node 10.1.0.1:8080"},
		},
		{
			"2.3 external policy without a way in", web(external),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1")},
			[]string{plain + " usable", "  common 10.1.0.1:8080"},
		},

		{
			"2.4 nothing usable: REJECT", web(internal),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n2", unready)},
			[]string{plain + " internal-local"},
		},
		{
			"2.4 usable elsewhere: DROP", web(internal),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n2", draining)},
			[]string{plain + " internal-local usable"},
		},

		{
			"2.9 UDP keeps what serves", web(udp, nodePort(30080), external),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1"), endpoint("10.1.0.2", "n2", draining), endpoint("10.1.0.3", "n2", unready)},
			[]string{"service default/web:http/UDP/IPv4 cluster-ip=10.96.0.10 port=80 node-port=30080 external-local usable", "  common 10.1.0.1:8080", "  common 10.1.0.2:8080 kept", "  node 10.1.0.1:8080"},
		},
		{
			"2.9 UDP, whatever topology", web(udp),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", zoneHint("a")), endpoint("10.1.0.2", "n2", zoneHint("b"))},
			[]string{"service default/web:http/UDP/IPv4 cluster-ip=10.96.0.10 port=80 cluster-scope=zone usable", "  common 10.1.0.1:8080 kept", "  common 10.1.0.2:8080 kept", "  zone 10.1.0.1:8080"},
		},
		{
			"2.9 UDP, whatever policy", web(udp, internal),
			[]endpoints.Endpoint{endpoint("10.1.0.2", "n2")},
			[]string{"service default/web:http/UDP/IPv4 cluster-ip=10.96.0.10 port=80 internal-local usable", "  common 10.1.0.2:8080 kept"},
		},

		{
			"1.13 of duplicates the one that is not terminating", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", draining), endpoint("10.1.0.1", "n2")},
			[]string{plain + " usable", "  common 10.1.0.1:8080"},
		},
		{
			"1.13 even if it is not ready", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1", draining), endpoint("10.1.0.1", "n2", unready)},
			[]string{plain},
		},
		{
			"1.13 other ports are no duplicates", web(),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "n1"), endpoint("10.1.0.1", "n1", func(e *endpoints.Endpoint) {
				e.Ports = []endpoints.Port{{Name: "http", Protocol: 1, Port: 8081}}
			})},
			[]string{plain + " usable", "  common 10.1.0.1:8080", "  common 10.1.0.1:8081"},
		},

		{
			"an endpoint on no node is local to none", web(internal),
			[]endpoints.Endpoint{endpoint("10.1.0.1", "")},
			[]string{plain + " internal-local usable"},
		},
		{
			"endpoints of other ports, protocols and families", web(),
			[]endpoints.Endpoint{
				endpoint("fd00::1", "n1"),
				endpoint("10.1.0.1", "n1", func(e *endpoints.Endpoint) { e.Ports = []endpoints.Port{{Name: "https", Protocol: 1, Port: 1}} }),
				endpoint("10.1.0.2", "n1", func(e *endpoints.Endpoint) { e.Ports = []endpoints.Port{{Name: "http", Protocol: 2, Port: 1}} }),
			},
			[]string{plain},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, out := compiled(t, Config{}, c.svc, c.eps...)
			wantTable(t, cl, "n1", c.want...)
			wantProblems(t, out)
			cl.c.DeleteService("default", "web")
			cl.flush()
			wantTable(t, cl, "n1")
		})
	}
}

// TestAudiences: who gets which row.
func TestAudiences(t *testing.T) {
	cl, _ := compiled(t, Config{}, web(internal, nodePort(30080)),
		endpoint("10.1.0.1", "n1", zoneHint("a")), endpoint("10.1.0.2", "n9", zoneHint("b")))
	if got, want := sortedKeys(cl.digests()), []string{"common", "node/n1", "node/n2", "node/n3", "node/n9", "zone/", "zone/a", "zone/b"}; !equal(got, want) {
		t.Errorf("audiences %v, want %v", got, want)
	}
	row := plain + " node-port=30080 internal-local cluster-scope=zone usable"
	wantTable(t, cl, "n2", row, "  zone 10.1.0.2:8080")
	wantTable(t, cl, "n3", row, "  zone 10.1.0.1:8080", "  zone 10.1.0.2:8080")
}
