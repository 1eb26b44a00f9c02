package iptrace

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/test/oracle/journey"
)

// Trace returns all that can become of the packet, in the order in which the rules decide it; the probabilities sum up to
// 1. It fails where a kernel would: a loop of chains, or a target that its hook does not know.
func (r *Ruleset) Trace(h journey.Host, p journey.Packet, m journey.Memory) ([]journey.Result, error) {
	var results []journey.Result
	d := journey.Dice{}
	for more := true; more; more = d.Turn() {
		w := walk{rules: r, host: h, packet: p, memory: m, dice: &d}
		if err := w.run(); err != nil {
			return nil, fmt.Errorf("trace %v -> %v port %d: %w", p.Src, p.Dst, p.DPort, err)
		}
		w.outcome.Mark = w.mark
		slices.Sort(w.remembered)
		results = append(results, journey.Result{Outcome: w.outcome, Probability: d.Weight(), Remembered: slices.Compact(w.remembered)})
	}
	return results, nil
}

// walk is one way through the rules.
type walk struct {
	rules      *Ruleset
	host       journey.Host
	packet     journey.Packet
	memory     journey.Memory
	dice       *journey.Dice
	mark       uint32
	outcome    journey.Outcome
	remembered []string
	// ended: dropped or rejected.
	ended bool
}

func (w *walk) remember(list string) { w.remembered = append(w.remembered, list) }

// run passes the hooks in the kernel's order (enum nf_ip_hook_priorities). What a host sends to itself comes back in by
// the loopback device, where the nat table is not asked again.
func (w *walk) run() error {
	w.outcome.Fate = journey.Passed
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
		if table == "nat" && w.packet.State != "" && w.packet.State != journey.New {
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
		w.outcome = journey.Outcome{Fate: map[verdict]journey.Fate{drop: journey.Dropped, reject: journey.Rejected}[v]}
		w.mark, w.remembered = 0, nil
	case accept:
		if table == "filter" && (hook == "FORWARD" || hook == "INPUT") {
			w.outcome.Fate = journey.Accepted
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
