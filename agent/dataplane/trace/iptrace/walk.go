package iptrace

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Host is what the rules ask the host about.
type Host struct {
	// Local are the host's own addresses.
	Local []netip.Addr
	// PodDevice and OtherDevice are where packets from local Pods and from elsewhere come in.
	PodDevice, OtherDevice string
}

// packet is the first of a connection, on its way.
type packet struct {
	protocol   fwd.Protocol
	src        netip.Addr
	dst        netip.AddrPort
	in         string
	mark       uint32
	translated bool
	masquerade bool
	// weight is how likely it is that it came this far.
	weight float64
}

// result is a packet at the end of a chain; verdict "" is a return to where the chain was called.
type result struct {
	packet
	verdict string
}

type walker struct {
	rules *Rules
	host  Host
	depth int
	// met are the rules that matched, in order, each once.
	met []string
}

func (w *walker) local(a netip.Addr) bool { return slices.Contains(w.host.Local, a) || a.IsLoopback() }

// Walk sends the case's packet through the hooks that it would meet. Besides unknown rules it is an error if chance
// decides about more than the endpoint or does not make all endpoints equally likely, and if a mark stays on the packet.
func (r *Rules) Walk(h Host, c trace.Case) (trace.Outcome, error) {
	ends, _, err := r.send(h, c)
	if err != nil {
		return trace.Outcome{}, err
	}
	return outcome(ends)
}

// Path sends the packet likewise and returns its verdict, and the rules that it may match on its way, in order and each once, as
// "TABLE RULE". Chance may decide about the endpoint, fairly or not, and about masquerading: an endpoint that reaches itself is
// hidden, one that reaches others is not.
func (r *Rules) Path(h Host, c trace.Case) (trace.Verdict, []string, error) {
	ends, met, err := r.send(h, c)
	if err != nil {
		return "", nil, err
	}
	verdict := ends[0].becomes()
	if i := slices.IndexFunc(ends, func(e result) bool { return e.becomes() != verdict }); i >= 0 {
		return "", met, fmt.Errorf("walk %v to %v: chance decides between %v and %v", c.Client, c.To, verdict, ends[i].becomes())
	}
	return verdict, met, nil
}

func (r *Rules) send(h Host, c trace.Case) (ends []result, met []string, err error) {
	w := &walker{rules: r, host: h}
	p := packet{protocol: c.Protocol, src: c.Client.Addr, dst: c.To, weight: 1}
	if ends, err = w.route(c.Client.Kind, p); err != nil {
		return nil, nil, fmt.Errorf("walk %v to %v: %w", c.Client, c.To, err)
	}
	return ends, w.met, nil
}

// becomes is the verdict on a packet that came to this end.
func (e result) becomes() trace.Verdict {
	switch {
	case e.verdict == "DROP":
		return trace.Dropped
	case e.verdict == "REJECT":
		return trace.Rejected
	case e.translated:
		return trace.Forwarded
	}
	return trace.Passed
}

func (w *walker) meet(chain, line string) {
	table, _, _ := strings.Cut(chain, " ")
	if rule := table + " " + line; !slices.Contains(w.met, rule) {
		w.met = append(w.met, rule)
	}
}

// route is the way of a packet through the tables that we know.
func (w *walker) route(from trace.Kind, p packet) ([]result, error) {
	first, output := "nat PREROUTING", false
	switch from {
	case trace.Node:
		first, output = "nat OUTPUT", true
	case trace.Pod:
		p.in = w.host.PodDevice
	case trace.Remote, trace.External:
		p.in = w.host.OtherDevice
	}
	hooks := []func(packet) string{
		func(packet) string { return first },
		func(p packet) string {
			switch {
			case output:
				return "filter OUTPUT"
			case w.local(p.dst.Addr()):
				return "filter INPUT"
			}
			return "filter FORWARD"
		},
		func(p packet) string {
			if output && w.local(p.dst.Addr()) {
				return "filter INPUT"
			}
			return ""
		},
		func(p packet) string {
			if !output && w.local(p.dst.Addr()) {
				return ""
			}
			return "nat POSTROUTING"
		},
	}
	alive := []result{{packet: p}}
	var ends []result
	for _, hook := range hooks {
		var next []result
		for _, at := range alive {
			chain := hook(at.packet)
			if chain == "" {
				next = append(next, at)
				continue
			}
			passed, err := w.chain(chain, at.packet)
			if err != nil {
				return nil, err
			}
			for _, e := range passed {
				if e.verdict == "DROP" || e.verdict == "REJECT" {
					ends = append(ends, e)
					continue
				}
				next = append(next, result{packet: e.packet})
			}
		}
		alive = next
	}
	return append(ends, alive...), nil
}

// chain walks one chain from its first rule.
func (w *walker) chain(name string, p packet) ([]result, error) {
	if w.depth++; w.depth > 100 {
		return nil, fmt.Errorf("chain %s: calls itself", name)
	}
	defer func() { w.depth-- }()
	rules, ok := w.rules.chains[name]
	if !ok {
		return nil, fmt.Errorf("chain %s: not declared", name)
	}
	var ends []result
	here := []packet{p}
	for _, r := range rules {
		var next []packet
		for _, p := range here {
			likely, err := w.matches(r, p)
			if err != nil {
				return nil, err
			}
			if likely < 1 {
				miss := p
				miss.weight *= 1 - likely
				next = append(next, miss)
			}
			if likely == 0 {
				continue
			}
			w.meet(name, r.line)
			p.weight *= likely
			on, ended, err := w.apply(name, r, p)
			if err != nil {
				return nil, err
			}
			next, ends = append(next, on...), append(ends, ended...)
		}
		here = next
	}
	for _, p := range here {
		ends = append(ends, result{packet: p})
	}
	return ends, nil
}

// apply does what a rule says: packets go on with the next rule, or the chain ends for them.
func (w *walker) apply(chain string, r rule, p packet) (on []packet, ended []result, err error) {
	table := chain[:len("nat")]
	if table != "nat" {
		table = "filter"
	}
	switch r.jump {
	case "":
		if r.goTo == "" {
			return []packet{p}, nil, nil
		}
		ended, err = w.chain(table+" "+r.goTo, p)
		return nil, ended, err
	case "ACCEPT", "DROP", "REJECT":
		return nil, []result{{p, r.jump}}, nil
	case "RETURN":
		return nil, []result{{packet: p}}, nil
	case "DNAT":
		to, err := netip.ParseAddrPort(r.options["--to-destination"])
		p.dst, p.translated = to, true
		return nil, []result{{p, "ACCEPT"}}, err
	case "MASQUERADE":
		p.masquerade = true
		return nil, []result{{p, "ACCEPT"}}, nil
	case "MARK":
		p.mark, err = mark(p.mark, r.options)
		return []packet{p}, nil, err
	}
	ends, err := w.chain(table+" "+r.jump, p)
	for _, e := range ends {
		if e.verdict == "" {
			on = append(on, e.packet)
		} else {
			ended = append(ended, e)
		}
	}
	return on, ended, err
}

func mark(old uint32, options map[string]string) (uint32, error) {
	for option, value := range options {
		v, mask, err := markAndMask(value)
		switch option {
		case "--set-xmark":
			return old&^mask ^ v, err
		case "--or-mark":
			return old | v, err
		case "--xor-mark":
			return old ^ v, err
		}
	}
	return 0, fmt.Errorf("MARK %v: unknown options", options)
}

// outcome joins the ends that chance may lead to.
func outcome(ends []result) (trace.Outcome, error) {
	var o trace.Outcome
	weights := map[netip.AddrPort]float64{}
	for i, e := range ends {
		one := trace.Outcome{Verdict: e.becomes(), Masquerade: e.masquerade}
		if e.mark != 0 {
			return o, fmt.Errorf("mark %#x is left on the packet", e.mark)
		}
		switch one.Verdict {
		case trace.Dropped, trace.Rejected:
			one.Masquerade = false
		case trace.Forwarded:
			weights[e.dst] += e.weight
		case trace.Passed:
		}
		if i > 0 && (one.Verdict != o.Verdict || one.Masquerade != o.Masquerade) {
			return o, fmt.Errorf("chance decides between %v and %v", o, one)
		}
		o = one
	}
	for e, weight := range weights {
		if math.Abs(weight*float64(len(weights))-1) > 1e-6 {
			return o, fmt.Errorf("endpoint %v of %d: chosen with probability %v", e, len(weights), weight)
		}
		o.Endpoints = append(o.Endpoints, e)
	}
	slices.SortFunc(o.Endpoints, netip.AddrPort.Compare)
	return o, nil
}
