package explain_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/explain"
	"github.com/fairlead/fairlead/proto/fwd"
)

const table = `node-facts pod-cidrs=10.244.1.0/24 addresses=192.0.2.11
service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 node-port=30080 external-local affinity-seconds=10 usable
  common 10.244.1.5:8080
  common 10.244.2.5:8080
  node 10.244.1.5:8080
service default/zone:/UDP/IPv4 cluster-ip=10.96.0.11 port=53 cluster-scope=zone usable
  common 10.244.1.7:53 kept
  zone 10.244.1.6:53
service default/drain:/TCP/IPv4 cluster-ip=10.96.0.12 port=80 internal-local usable
  node 10.244.1.8:80 draining
`

func ask(t *testing.T, from, to string, protocol fwd.Protocol) explain.Answer {
	t.Helper()
	parsed, err := fwd.ParseText(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	node := []netip.Addr{netip.MustParseAddr("192.0.2.11")}
	h := explain.Host{Mode: "iptables", DetectLocal: dataplane.LocalNodeCIDR, Local: node, NodePorts: node}
	return explain.Explain(parsed, h, explain.Packet{Protocol: protocol, From: netip.MustParseAddr(from), To: netip.MustParseAddrPort(to)})
}

// TestWrite holds the words that people read.
func TestWrite(t *testing.T) {
	a := ask(t, "198.51.100.7", "192.0.2.11:30080", fwd.TCP)
	a.Rules = []string{"nat -A SOME -j RULE"}
	var b strings.Builder
	if err := a.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `198.51.100.7, neither a Pod of this node nor the node, to 192.0.2.11:30080/TCP: forwarded in iptables mode

service   default/web:http/TCP/IPv4, by its node port
list      local
client    is seen by endpoints
affinity  10 seconds

why
  198.51.100.7 is not in the Pod CIDRs of this node
  192.0.2.11:30080 is the node port of default/web:http/TCP/IPv4
  externalTrafficPolicy is Local: endpoints of this node alone, which see the client's address
  session affinity: a client that has an endpoint stays with it as long as it is in the list

endpoints that this node knows
  used  10.244.1.5:8080  ready, on this node
  -     10.244.2.5:8080  not on this node, or not to be used here

rules
  nat -A SOME -j RULE
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	encoded, err := json.Marshal(a)
	if err != nil || !strings.Contains(string(encoded), `"verdict":"forwarded","list":"local","masquerade":false`) {
		t.Errorf("JSON %s, %v", encoded, err)
	}
}

// TestWhy holds the reasons that traces cannot tell.
func TestWhy(t *testing.T) {
	for _, c := range []struct {
		from, to string
		protocol fwd.Protocol
		want     string
		used     string
	}{
		{"10.244.1.9", "192.0.2.11:30080", fwd.TCP, "short cut", "10.244.1.5:8080 ready, 10.244.2.5:8080 ready"},
		{"192.0.2.11", "192.0.2.11:30080", fwd.TCP, "the node itself takes the short cut", "10.244.1.5:8080 ready, 10.244.2.5:8080 ready"},
		{
			"10.244.1.9", "10.96.0.11:53", fwd.UDP, "is the cluster IP of default/zone:/UDP/IPv4",
			"10.244.1.6:53 ready, in the list of this node's zone, -10.244.1.7:53 not in use here: it serves, so that UDP flows to it live on",
		},
		{"10.244.1.9", "10.96.0.12:80", fwd.TCP, "internalTrafficPolicy is Local", "10.244.1.8:80 terminating, and used because none is ready, on this node"},
		{"10.244.1.8", "10.96.0.12:80", fwd.TCP, "the client is an endpoint itself", "10.244.1.8:80 terminating, and used because none is ready, on this node"},
		{"10.244.1.9", "10.96.0.12:81", fwd.TCP, "in iptables mode such packets go on as they are", ""},
		{"10.244.1.9", "192.0.2.99:1", fwd.TCP, "nothing of ours looks at it", ""},
	} {
		a := ask(t, c.from, c.to, c.protocol)
		var endpoints []string
		for _, e := range a.Endpoints {
			endpoints = append(endpoints, map[bool]string{false: "-"}[e.Used]+e.Address.String()+" "+e.Why)
		}
		if why := strings.Join(a.Why, "; "); !strings.Contains(why, c.want) || strings.Join(endpoints, ", ") != c.used {
			t.Errorf("%s to %s: why %q, want %q; endpoints %q, want %q", c.from, c.to, why, c.want, endpoints, c.used)
		}
	}
	if a := ask(t, "10.244.1.9", "10.96.0.10:80", fwd.UDP); a.Service != "" || slices.Contains(a.Why, "") {
		t.Errorf("another protocol: %+v", a)
	}
}
