package trace_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

const good = `option detect-local=ClusterCIDR cluster-cidrs=10.244.0.0/16 # Pods
service default/web:/TCP/IPv4 cluster-ip=10.96.0.10 port=80 source-ranges=0.0.0.0/0 usable
  common 10.244.1.5:8080
case external@198.51.100.8 tcp 10.96.0.10:80 -> 10.244.1.5:8080 masquerade | ipvs none
`

func TestParse(t *testing.T) {
	for f, want := range map[fwd.Family][]string{
		fwd.IPv4: {"10.244.0.0/16", "10.96.0.10:80", "198.51.100.8", "10.244.1.5:8080 masquerade", "0.0.0.0/0"},
		fwd.IPv6: {"fd00::10:244:0:0/96", "[fd00::10:96:0:10]:80", "fd00::198:51:100:8", "[fd00::10:244:1:5]:8080 masquerade", "::/0"},
	} {
		file, err := trace.Parse(good, f)
		if err != nil {
			t.Fatal(err)
		}
		c := file.Cases[0]
		var range0 string
		for _, p := range file.Table.Ports() {
			range0 = p.SourceRanges[0].String()
		}
		got := []string{file.Options.ClusterCIDRs[0].String(), c.To.String(), c.Client.Addr.String(), c.For("iptables").String(), range0}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%v: %s, want %s", f, got[i], want[i])
			}
		}
		if c.For("ipvs").Verdict != trace.Passed || c.Line != 4 {
			t.Errorf("%v: case %+v: want its own expectation for ipvs, and line 4", f, c)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"case pod tcp 10.0.0.1:80":                           "line 1: case",
		"\ncase somebody tcp 10.0.0.1:80 -> none":            "line 2: client",
		"case pod icmp 10.0.0.1:80 -> none":                  "line 1: case: protocol",
		"case pod tcp 10.0.0.1 -> none":                      "line 1: case: destination",
		"case pod tcp 10.0.0.1:80 ->":                        "line 1: outcome",
		"case pod tcp 10.0.0.1:80 -> reject 10.0.0.2:80":     "line 1: outcome",
		"case pod tcp 10.0.0.1:80 -> none | ipvs":            "line 1: case",
		"option speed=9":                                     "line 1: option speed",
		"option cluster-cidrs=10.0.0.0":                      "line 1: option cluster-cidrs",
		"service default/web:/TCP/IPv4 cluster-ip=127.0.0.1": "line 1",
	} {
		if _, err := trace.Parse(text, fwd.IPv4); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}
