package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/agent/dataplane/trace/iptrace"
)

// TestWalk walks every case of every trace over the plan, for a kernel that has all that rules may use, and for one that
// cannot compare addresses.
func TestWalk(t *testing.T) {
	plain := fullSupport()
	plain.sameAddr = false
	for name, supported := range map[string]support{"all": fullSupport(), "without xt_bpf": plain} {
		for _, file := range loadTraces(t) {
			t.Run(name+"/"+file.Name+"/"+file.Family.String(), func(t *testing.T) {
				var text strings.Builder
				s := newSettings(configFor(file.Options), file.Family, file.Table.Node())
				s.support = supported
				if err := writePlan(&text, s, file.Table); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(text.String(), "-m bpf") != supported.sameAddr {
					t.Errorf("xt_bpf is used: %t", !supported.sameAddr)
				}
				rules, err := iptrace.Parse(text.String())
				if err != nil {
					t.Fatalf("%v in\n%s", err, text.String())
				}
				for _, c := range file.Cases {
					want := c.For("iptables")
					got, err := rules.Walk(hostOf(file, c), c)
					if err != nil || !got.Equal(want) {
						t.Errorf("%s.trace:%d: %v %v to %v: got %v, want %v (error %v)", file.Name, c.Line, c.Client, c.Protocol, c.To, got, want, err)
					}
				}
			})
		}
	}
}

// hostOf is the host that the traces are written for. A client on the node has its address there.
func hostOf(file trace.File, c trace.Case) iptrace.Host {
	a := trace.Plan(file.Family)
	h := iptrace.Host{Local: []netip.Addr{a.Node, a.PodGateway, a.RemoteLink}, PodDevice: "cbr0", OtherDevice: "up0"}
	if c.Client.Kind == trace.Node {
		h.Local = append(h.Local, c.Client.Addr)
	}
	return h
}
