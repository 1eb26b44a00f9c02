package iptrace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// State is what connection tracking knows of a packet.
type State string

// The states. Only a New packet meets the nat table.
const (
	New         State = "NEW"
	Established State = "ESTABLISHED"
	Invalid     State = "INVALID"
)

// Packet is a packet as it arrives, or with In empty as a process of the host sends it.
type Packet struct {
	In       string // device
	Src, Dst netip.Addr
	Protocol fwd.Protocol
	DPort    uint16
	State    State // "" is New
}

// Host is what the kernel knows besides the rules: the addresses that are its own. Loopback addresses always are.
type Host struct{ Addrs []netip.Addr }

// Owns reports whether an address is one of the host's own.
func (h Host) Owns(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(h.Addrs, a) }

// Memory is what xt_recent remembers of the packet's source: the seconds since it was last seen, by list.
type Memory map[string]uint32

// Fate is how a packet's walk ends.
type Fate string

// The fates. Accepted is Passed by a rule in filter's INPUT or FORWARD that says so, whatever the chain's policy.
const (
	Passed   Fate = "passed"
	Accepted Fate = "accepted"
	Dropped  Fate = "dropped"
	Rejected Fate = "rejected"
)

// Outcome is one thing that can become of a packet.
type Outcome struct {
	Fate Fate
	// To is the translated destination; the zero value is none.
	To netip.AddrPort
	// Masquerade: the source is replaced by an address of the host.
	Masquerade bool
	// Mark is the packet's mark when it leaves.
	Mark uint32
}

// String returns a line such as "accepted to 10.0.0.1:80, masqueraded".
func (o Outcome) String() string {
	text := string(o.Fate)
	if o.To.IsValid() {
		text += " to " + o.To.String()
	}
	if o.Masquerade {
		text += ", masqueraded"
	}
	if o.Mark != 0 {
		text += fmt.Sprintf(", mark %#x", o.Mark)
	}
	return text
}

// Result is an Outcome, how likely it is, and the lists of xt_recent that then remember the client, sorted.
type Result struct {
	Outcome
	Probability float64
	Remembered  []string
}

// Trace returns all that can become of the packet, in the order in which the rules decide it; the probabilities sum up to
// 1. It fails where a kernel would: a loop of chains, or a target that its hook does not know.
func (r *Ruleset) Trace(h Host, p Packet, m Memory) ([]Result, error) {
	var results []Result
	d := dice{}
	for more := true; more; more = d.turn() {
		w := walk{rules: r, host: h, packet: p, memory: m, dice: &d}
		if err := w.run(); err != nil {
			return nil, fmt.Errorf("trace %v -> %v port %d: %w", p.Src, p.Dst, p.DPort, err)
		}
		w.outcome.Mark = w.mark
		slices.Sort(w.remembered)
		results = append(results, Result{w.outcome, d.weight(), slices.Compact(w.remembered)})
	}
	return results, nil
}

// walk is one way through the rules.
type walk struct {
	rules      *Ruleset
	host       Host
	packet     Packet
	memory     Memory
	dice       *dice
	mark       uint32
	outcome    Outcome
	remembered []string
	// ended: dropped or rejected.
	ended bool
}

func (w *walk) remember(list string) { w.remembered = append(w.remembered, list) }

// run passes the hooks in the kernel's order (enum nf_ip_hook_priorities). What a host sends to itself comes back in by
// the loopback device, where the nat table is not asked again.
func (w *walk) run() error {
	w.outcome.Fate = Passed
	if w.packet.In != "" {
		if err := w.hook("PREROUTING", "raw", "mangle", "nat"); err != nil {
			return err
		}
		if w.host.Owns(w.packet.Dst) {
			return w.hook("INPUT", "mangle", "filter", "nat")
		}
		return errors.Join(w.hook("FORWARD", "mangle", "filter"), w.hook("POSTROUTING", "mangle", "nat"))
	}
	if err := errors.Join(w.hook("OUTPUT", "raw", "mangle", "nat", "filter"), w.hook("POSTROUTING", "mangle", "nat")); err != nil {
		return err
	}
	if !w.host.Owns(w.packet.Dst) {
		return nil
	}
	w.packet.In = "lo"
	return errors.Join(w.hook("PREROUTING", "raw", "mangle"), w.hook("INPUT", "mangle", "filter"))
}

func (w *walk) hook(name string, tables ...string) error {
	for _, table := range tables {
		if table == "nat" && w.packet.State != "" && w.packet.State != New {
			continue
		}
		c := w.rules.tables[table][name]
		if c == nil || w.ended {
			continue
		}
		v, err := w.chain(table, c, 0)
		if err != nil {
			return fmt.Errorf("%s %s: %w", table, name, err)
		}
		if v == nothing && c.drop {
			v = drop
		}
		w.end(v, table, name)
	}
	return nil
}

func (w *walk) end(v verdict, table, hook string) {
	switch v {
	case drop, reject:
		w.ended = true
		w.outcome = Outcome{Fate: map[verdict]Fate{drop: Dropped, reject: Rejected}[v]}
		w.mark, w.remembered = 0, nil
	case accept:
		if table == "filter" && (hook == "FORWARD" || hook == "INPUT") {
			w.outcome.Fate = Accepted
		}
	default:
	}
}

// chain walks one chain. nothing and leave say that its end was reached.
func (w *walk) chain(table string, c *chain, depth int) (verdict, error) {
	if depth > 64 {
		return nothing, errors.New("chains go in circles")
	}
	for _, r := range c.rules {
		if !both(r.matches)(w) {
			continue
		}
		v, err := w.apply(table, r, depth)
		switch {
		case err != nil:
			return v, err
		case v == leave:
			return nothing, nil
		case v != nothing || r.target.final:
			return v, nil
		}
	}
	return nothing, nil
}

func (w *walk) apply(table string, r *rule, depth int) (verdict, error) {
	t := r.target
	switch t.verdict {
	case jump:
		return w.chain(table, w.rules.tables[table][t.chain], depth+1)
	case mark:
		w.mark = t.mark(w.mark)
		return nothing, nil
	case dnat:
		if table != "nat" || w.outcome.To.IsValid() {
			return nothing, fmt.Errorf("%s: translates outside of nat or a second time", strings.TrimSpace(r.text))
		}
		w.outcome.To = t.to
		w.packet.Dst, w.packet.DPort = t.to.Addr(), t.to.Port()
		return accept, nil
	case masquerade:
		if table != "nat" {
			return nothing, fmt.Errorf("%s: masquerades outside of nat", strings.TrimSpace(r.text))
		}
		w.outcome.Masquerade = true
		return accept, nil
	default:
		return t.verdict, nil
	}
}
