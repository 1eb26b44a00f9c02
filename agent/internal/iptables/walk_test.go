package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/agent/dataplane/trace/iptrace"
	"github.com/fairlead/fairlead/proto/fwd"
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

// TestInvalid holds that packets which connection tracking calls invalid are dropped before anything is accepted in FORWARD,
// unless the kernel's connection tracking is liberal.
func TestInvalid(t *testing.T) {
	for _, keep := range []bool{false, true} {
		config := kernelConfig(FlavorNFT)
		config.KeepInvalid = keep
		for _, f := range fwd.Families() {
			var text strings.Builder
			if err := WritePlan(&text, config, f, parseTable(t, webTable)); err != nil {
				t.Fatal(err)
			}
			_, first, _ := strings.Cut(text.String(), "-A FL-FORWARD ")
			first, _, _ = strings.Cut(first, "\n")
			if dropped := first == "-m conntrack --ctstate INVALID -j DROP"; dropped == keep {
				t.Errorf("%v, liberal %t: the first rule of FL-FORWARD is %s", f, keep, first)
			}
			if n := strings.Count(text.String(), "INVALID"); keep && n > 0 {
				t.Errorf("%v: %d rules about invalid packets, though connection tracking is liberal", f, n)
			}
		}
	}
}
