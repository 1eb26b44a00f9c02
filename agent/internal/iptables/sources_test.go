package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/agent/dataplane/trace/iptrace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// ownAddress is a load balancer that announces the node's own address: who is left out comes to INPUT.
const ownAddress = `
option detect-local=ClusterCIDR cluster-cidrs=10.244.0.0/16
node-facts pod-cidrs=10.244.1.0/24 addresses=192.0.2.11
service default/own:/TCP/IPv4 cluster-ip=10.96.4.20 load-balancer-ips=192.0.2.11 port=8443 source-ranges=198.51.100.0/24 usable
  common 10.244.1.5:8080
case external tcp 192.0.2.11:8443 -> 10.244.1.5:8080 masquerade
case external@198.18.7.7 tcp 192.0.2.11:8443 -> drop
case external@198.18.7.7 tcp 192.0.2.11:8444 -> none
`

// TestSourceRangesOfOwnAddress holds that source ranges filter a load-balancer IP that is an address of the node itself, in the
// plan and in kernels where something listens there.
func TestSourceRangesOfOwnAddress(t *testing.T) {
	for _, f := range fwd.Families() {
		file, err := trace.Parse(ownAddress, f)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := WritePlan(&text, configFor(file.Options), f, file.Table); err != nil {
			t.Fatal(err)
		}
		rules, err := iptrace.Parse(text.String())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range file.Cases {
			if got, err := rules.Walk(hostOf(*file, c), c); err != nil || !got.Equal(c.Want) {
				t.Errorf("line %d, %v: got %v, want %v (error %v)", c.Line, f, got, c.Want, err)
			}
		}
	}
	flavors(t, func(t *testing.T, flavor Flavor) {
		l := newLab(t)
		file, err := trace.Parse(ownAddress, fwd.IPv4)
		if err != nil {
			t.Fatal(err)
		}
		serve(t, l, file.Table)
		serve(t, l, parseTable(t, "service a/node:/TCP/IPv4 cluster-ip=10.96.0.200 port=1\n  common 192.0.2.11:8443\n"))
		sync(t, backendIn(t, l, kernelConfig(flavor)), everything(file.Table))
		if got := ask(t, l, client(trace.External), "192.0.2.11:8443"); got.Endpoint != netip.MustParseAddrPort("10.244.1.5:8080") {
			t.Errorf("from inside the ranges: %+v, want the endpoint", got)
		}
		stranger := trace.Client{Kind: trace.External, Addr: netip.MustParseAddr("198.18.7.7")}
		if got := ask(t, l, stranger, "192.0.2.11:8443"); got.Endpoint.IsValid() || got.Refused {
			t.Errorf("from outside of the ranges: %+v, want no answer", got)
		}
	})
}
