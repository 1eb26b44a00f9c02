package nftables

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestWalk walks every case of every trace over the plan.
func TestWalk(t *testing.T) {
	for _, file := range loadTraces(t) {
		t.Run(file.Name+"/"+file.Family.String(), func(t *testing.T) {
			m := newMachine(configFor(file.Options), file.Family, file.Table)
			for _, c := range file.Cases {
				want := c.For("nftables")
				got, err := m.walk(c)
				if err != nil || !got.Equal(want) {
					t.Errorf("%s.trace:%d: %v %v to %v: got %v, want %v (error %v)", file.Name, c.Line, c.Client, c.Protocol, c.To, got, want, err)
				}
			}
		})
	}
}

// walk sends the case's packet through the hooks that it would meet.
func (m *machine) walk(c trace.Case) (trace.Outcome, error) {
	a := trace.Plan(m.family)
	m.local = []netip.Addr{a.Node, a.PodGateway, a.RemoteLink}
	p := packet{saddr: c.Client.Addr, to: c.To, original: c.To, protocol: c.Protocol, weight: 1}
	first := preroutingChain
	switch c.Client.Kind {
	case trace.Node:
		first = outputChain
		m.local = append(m.local, c.Client.Addr)
	case trace.Pod:
		p.in = "cbr0"
	case trace.Remote, trace.External:
		p.in = "up0"
	}
	var ends []end
	came, err := m.chain(first, p)
	if err != nil {
		return trace.Outcome{}, err
	}
	for _, e := range came {
		if e.verdict == dropped || e.verdict == rejected {
			ends = append(ends, e)
			continue
		}
		e.in = "" // is not known behind the routing
		last := postroutingChain
		if first == preroutingChain && slices.Contains(m.local, e.to.Addr()) {
			last = inputChain
		}
		went, err := m.chain(last, e.packet)
		if err != nil {
			return trace.Outcome{}, err
		}
		for _, w := range went {
			if w.masked && w.mark != 0 {
				return trace.Outcome{}, fmt.Errorf("mark 0x%x stays on the packet", w.mark)
			}
			ends = append(ends, w)
		}
	}
	return outcome(ends)
}

// unfair is by how much of its share an endpoint's share may differ from it.
const unfair = 0.01

// unlikely is what may become of less than one packet in ten thousand: what the retries of a list are there for.
const unlikely = 1e-4

// outcome sums up what all ends of a walk have in common: chance may decide about the endpoint only, and decides fairly.
func outcome(ends []end) (trace.Outcome, error) {
	type fate struct {
		verdict    trace.Verdict
		masquerade bool
	}
	fates, shares := map[fate]float64{}, map[netip.AddrPort]float64{}
	for _, e := range ends {
		f := fate{verdict: trace.Passed}
		switch {
		case e.verdict == dropped:
			f.verdict = trace.Dropped
		case e.verdict == rejected:
			f.verdict = trace.Rejected
		case e.translated:
			f = fate{trace.Forwarded, e.masked}
			shares[e.to] += e.weight
		}
		fates[f] += e.weight
	}
	maps.DeleteFunc(fates, func(_ fate, weight float64) bool { return weight < unlikely })
	if len(fates) != 1 {
		return trace.Outcome{}, fmt.Errorf("chance decides between %v", fates)
	}
	var o trace.Outcome
	for f := range fates {
		o.Verdict, o.Masquerade = f.verdict, f.masquerade
	}
	for e, s := range shares {
		if math.Abs(s*float64(len(shares))-1) > unfair {
			return o, fmt.Errorf("%v gets %.4f of the packets, one of %d", e, s, len(shares))
		}
		o.Endpoints = append(o.Endpoints, e)
	}
	slices.SortFunc(o.Endpoints, netip.AddrPort.Compare)
	return o, nil
}

// TestFairness holds that lists of all lengths are spread evenly.
func TestFairness(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 33, 64, 65, 100, 129} {
		m := newMachine(Defaults(), fwd.IPv4, scaled(t, 1, n))
		to := netip.AddrPortFrom(scaledPort(0).ClusterIP, 80)
		got, err := m.walk(trace.Case{Client: trace.Client{Kind: trace.Pod, Addr: netip.MustParseAddr("10.244.1.9")}, Protocol: fwd.TCP, To: to})
		if err != nil || len(got.Endpoints) != n {
			t.Errorf("%d endpoints: %d of them are used, error %v", n, len(got.Endpoints), err)
		}
	}
}
