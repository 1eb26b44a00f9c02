package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
)

// TestHostileRows holds that rows which no honest controller sends are refused a second time, and what is fit beside them is
// planned.
func TestHostileRows(t *testing.T) {
	name := func(service string) fwd.PortName {
		return fwd.PortName{Namespace: "default", Name: service, Port: "http", Protocol: fwd.TCP}
	}
	web := fwd.ServicePort{PortName: name("web"), ClusterIP: netip.MustParseAddr("10.96.0.10"), Port: 80, Usable: true}
	rows := []fwd.Row{fwd.EncodePort(web)}
	unfit := []string{
		"127.0.0.1:80", "0.0.0.0:80", "169.254.169.254:80", "224.0.0.1:80", "239.1.2.3:80", "255.255.255.255:80", // in the node, or groups
		"[::1]:80", "[fe80::1]:80", "[ff02::1]:80", "[::]:80", // the same
		"10.96.0.10:80",       // the Service itself
		"[2001:db8::5]:80",    // of the other family
		"10.244.1.66:0",       // no port
		"[::ffff:9.9.9.9]:80", // IPv4 in disguise
	}
	for _, backend := range append(unfit, "10.244.1.5:8080", "10.96.0.10:81") {
		rows = append(rows, fwd.EncodeBackend(web.ID(), fwd.Backend{Addr: netip.MustParseAddrPort(backend)}))
	}
	services := []fwd.ServicePort{
		{PortName: name("loopback"), ClusterIP: netip.MustParseAddr("127.0.0.1"), Port: 80},
		{PortName: name("group"), ClusterIP: netip.MustParseAddr("10.96.0.20"), LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("224.0.0.1")}, Port: 80},
		{PortName: name("link"), ClusterIP: netip.MustParseAddr("10.96.0.21"), ExternalIPs: []netip.Addr{netip.MustParseAddr("169.254.169.254")}, Port: 80},
		{PortName: name("six"), ClusterIP: netip.MustParseAddr("fd96::1"), Port: 80},
		{PortName: name("zero"), ClusterIP: netip.MustParseAddr("10.96.0.22")},
	}
	for _, s := range services {
		rows = append(rows, fwd.EncodePort(s))
	}
	table, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{fwd.Common: (&fwd.Part{}).With(nil, rows)})
	if err != nil {
		t.Fatal(err)
	}
	if want := len(unfit) + len(services); table.Refused() != want {
		t.Errorf("%d rows are refused, want %d", table.Refused(), want)
	}
	var text strings.Builder
	for _, f := range fwd.Families() {
		if err := WritePlan(&text, kernelConfig(FlavorNFT), f, table); err != nil {
			t.Fatal(err)
		}
	}
	for _, rule := range []string{"--to-destination 10.244.1.5:8080\n", "--to-destination 10.96.0.10:81\n"} {
		if strings.Count(text.String(), rule) != 1 {
			t.Errorf("no rule with %s", rule)
		}
	}
	if n := strings.Count(text.String(), "--to-destination"); n != 2 {
		t.Errorf("%d rules translate, want 2:\n%s", n, text.String())
	}
	for _, s := range services {
		if strings.Contains(text.String(), "default/"+s.Name) {
			t.Errorf("Service port %v is planned", s.PortName)
		}
	}
}
