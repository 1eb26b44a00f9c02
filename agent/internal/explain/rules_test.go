package explain_test

import (
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/agent/internal/explain"
	"github.com/fairlead/fairlead/agent/internal/iptables"
	"github.com/fairlead/fairlead/agent/internal/ipvs"
	"github.com/fairlead/fairlead/agent/internal/nftables"
	"github.com/fairlead/fairlead/proto/fwd"
)

func iptablesConfig(o trace.Options) iptables.Config {
	c := iptables.Defaults()
	c.DetectLocal, c.ClusterCIDRs, c.Interface = dataplane.LocalMode(o.DetectLocal), o.ClusterCIDRs, o.Interface
	c.MasqueradeAll, c.NodePortAddresses, c.NodePortPrimary = o.MasqueradeAll, o.NodePortAddresses, o.NodePortPrimary
	return c
}

// planOf is the text of a mode's plan for a file.
func planOf(t *testing.T, mode string, file trace.File) string {
	t.Helper()
	write := map[string]func(io.Writer) error{
		"iptables": func(w io.Writer) error {
			return iptables.WritePlan(w, iptablesConfig(file.Options), file.Family, file.Table)
		},
		"ipvs": func(w io.Writer) error {
			c := ipvs.Defaults()
			c.Rules = iptablesConfig(file.Options)
			return ipvs.WritePlan(w, c, file.Family, file.Table)
		},
		"nftables": func(w io.Writer) error {
			c, o := nftables.Defaults(), file.Options
			c.DetectLocal, c.ClusterCIDRs, c.Interface = dataplane.LocalMode(o.DetectLocal), o.ClusterCIDRs, o.Interface
			c.MasqueradeAll, c.NodePortAddresses = o.MasqueradeAll, o.NodePortAddresses
			return nftables.WritePlan(w, c, file.Family, file.Table)
		},
	}[mode]
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRules: the rules that are named make of the packet what is explained, they name where it goes, and only a packet that is
// left alone may meet none that is about its address.
func TestRules(t *testing.T) {
	for _, mode := range modes() {
		for _, file := range traces(t)[mode] {
			plan := planOf(t, mode, file)
			for _, c := range file.Cases {
				h, p := hostOf(t, mode, file, c), packetOf(c)
				a, v, err := h.WithRules(explain.Explain(file.Table, h, p), p, plan)
				if err != nil || v != a.Verdict {
					t.Errorf("%s, %s.trace:%d, %v: explained %v, the rules say %q (error %v):\n%s", mode, file.Name, c.Line, file.Family, a.Verdict, v, err, strings.Join(a.Rules, "\n"))
				}
				text := strings.Join(a.Rules, "\n")
				for _, e := range a.Used() {
					if !strings.Contains(text, e.Addr().String()) {
						t.Errorf("%s, %s.trace:%d, %v: no rule names endpoint %v:\n%s", mode, file.Name, c.Line, file.Family, e, text)
					}
				}
				if len(a.Used()) == 1 && (a.Masquerade || a.Hairpin) != hides(a.Rules) {
					t.Errorf("%s, %s.trace:%d, %v: masquerade is %t, and not so by the rules:\n%s", mode, file.Name, c.Line, file.Family, a.Masquerade, text)
				}
			}
		}
	}
}

func hides(rules []string) bool {
	return slices.ContainsFunc(rules, func(r string) bool {
		return strings.Contains(r, "-j MASQUERADE") || strings.Contains(r, "masquerade fully-random")
	})
}

// TestHairpinAmongMany: of several endpoints, the one that is the client itself is hidden from itself alone.
func TestHairpinAmongMany(t *testing.T) {
	for _, mode := range modes() {
		for _, file := range traces(t)[mode] {
			if file.Name != "clusterip" {
				continue
			}
			to := trace.InFamily("10.96.0.10:80", file.Family)
			c := trace.Case{Client: trace.Client{Kind: trace.Pod, Addr: netip.MustParseAddr(trace.InFamily("10.244.1.5", file.Family))}, Protocol: fwd.TCP, To: netip.MustParseAddrPort(to)}
			h, p := hostOf(t, mode, file, c), packetOf(c)
			a, v, err := h.WithRules(explain.Explain(file.Table, h, p), p, planOf(t, mode, file))
			if err != nil || v != explain.Forwarded || !a.Hairpin || a.Masquerade || len(a.Used()) < 2 || !hides(a.Rules) {
				t.Errorf("%s, %v: %v, %q, error %v", mode, file.Family, a, v, err)
			}
		}
	}
}
