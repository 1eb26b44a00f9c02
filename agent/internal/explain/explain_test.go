package explain_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/agent/internal/explain"
	"github.com/fairlead/fairlead/agent/internal/hostinfo"
)

func modes() []string { return []string{"iptables", "ipvs", "nftables"} }

// traces are those of all modes, and those of nftables mode alone.
func traces(t *testing.T) map[string][]trace.File {
	t.Helper()
	all, err := trace.Load("../../dataplane/testdata/trace")
	if err != nil {
		t.Fatal(err)
	}
	own, err := trace.Load("../nftables/testdata")
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]trace.File{"iptables": all, "ipvs": all, "nftables": append(slices.Clone(all), own...)}
}

// hostOf is the host that the traces are written for, with what its agent was told. A client on the node has its address
// there.
func hostOf(t *testing.T, mode string, file trace.File, c trace.Case) explain.Host {
	t.Helper()
	o, a := file.Options, trace.Plan(file.Family)
	h := explain.Host{
		Mode: mode, DetectLocal: dataplane.LocalMode(o.DetectLocal), ClusterCIDRs: o.ClusterCIDRs, Interface: o.Interface,
		MasqueradeAll: o.MasqueradeAll, Local: []netip.Addr{a.Node, a.PodGateway, a.RemoteLink},
	}
	if c.Client.Kind == trace.Node {
		h.Local = append(h.Local, c.Client.Addr)
	}
	var ports []string
	for _, p := range o.NodePortAddresses {
		ports = append(ports, p.String())
	}
	if o.NodePortPrimary || mode == "nftables" && len(ports) == 0 {
		ports = []string{"primary"}
	}
	n, err := hostinfo.ParseNodePortAddresses(ports)
	if err != nil {
		t.Fatal(err)
	}
	h.NodePorts = n.Select(h.Local, file.Table.Node().Addresses)
	return h
}

func packetOf(c trace.Case) explain.Packet {
	device := map[trace.Kind]string{trace.Pod: "cbr0", trace.Remote: "up0", trace.External: "up0"}[c.Client.Kind]
	return explain.Packet{Protocol: c.Protocol, From: c.Client.Addr, To: c.To, Device: device}
}

// outcome is an Answer as traces have it.
func outcome(a explain.Answer) trace.Outcome {
	o := trace.Outcome{Verdict: map[explain.Verdict]trace.Verdict{
		explain.Forwarded: trace.Forwarded, explain.Rejected: trace.Rejected, explain.Dropped: trace.Dropped, explain.Untouched: trace.Passed,
	}[a.Verdict]}
	if o.Verdict == trace.Forwarded {
		o.Endpoints = a.Used()
		o.Masquerade = a.Masquerade || a.Hairpin && len(o.Endpoints) == 1
	}
	return o
}

// TestTraces: what is explained is what backends are held to, case by case, in every mode.
func TestTraces(t *testing.T) {
	n := 0
	for _, mode := range modes() {
		for _, file := range traces(t)[mode] {
			for _, c := range file.Cases {
				n++
				a := explain.Explain(file.Table, hostOf(t, mode, file, c), packetOf(c))
				got, want := outcome(a), c.For(mode)
				// Real packets cannot tell "none" from a refusal where nobody listens: traces say "none" for both in IPVS mode.
				lenient := mode == "ipvs" && want.Verdict == trace.Passed && got.Verdict == trace.Rejected
				if !got.Equal(want) && !lenient {
					t.Errorf("%s, %s.trace:%d, %v: %v %v to %v: explained %v, want %v because of %q", mode, file.Name, c.Line, file.Family, c.Client, c.Protocol, c.To, got, want, a.Why)
				}
			}
		}
	}
	if n < 500 {
		t.Errorf("%d cases only", n)
	}
}
