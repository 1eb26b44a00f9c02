package nftrace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/test/oracle/journey"
)

// Trace returns all that can become of the packet; the probabilities sum up to 1. It fails where a kernel would: chains
// that lead too deep, or a translation where there is none.
func (r *Ruleset) Trace(h journey.Host, p journey.Packet, m journey.Memory) ([]journey.Result, error) {
	var results []journey.Result
	dice := journey.Dice{}
	for more := true; more; more = dice.Turn() {
		w := walk{rules: r, host: h, packet: p, original: p, memory: m, dice: &dice}
		if err := w.run(); err != nil {
			return nil, fmt.Errorf("trace %v -> %v port %d: %w", p.Src, p.Dst, p.DPort, err)
		}
		w.outcome.Mark = w.mark
		slices.Sort(w.remembered)
		results = append(results, journey.Result{Outcome: w.outcome, Probability: dice.Weight(), Remembered: slices.Compact(w.remembered)})
	}
	return results, nil
}

// walk is one way through the rules.
type walk struct {
	rules *Ruleset
	host  journey.Host
	// packet is translated on the way, original is not.
	packet, original journey.Packet
	memory           journey.Memory
	dice             *journey.Dice
	mark             uint32
	outcome          journey.Outcome
	remembered       []string
	// at is the hook, ended whether the packet was dropped or rejected.
	at    string
	ended bool
}

// run passes the hooks in which chains of type nat stand. They see the first packet of a connection only, and what a host
// sends to itself not again when it comes in by the loopback device.
func (w *walk) run() error {
	w.outcome.Fate = journey.Passed
	if w.packet.State != "" && w.packet.State != journey.New {
		return nil
	}
	if w.packet.In == "" {
		return errors.Join(w.hook("output"), w.hook("postrouting"))
	}
	if err := w.hook("prerouting"); err != nil {
		return err
	}
	if w.host.Owns(w.packet.Dst) {
		return w.hook("input")
	}
	w.packet.In = "" // is not known behind the routing
	return w.hook("postrouting")
}

func (w *walk) hook(name string) error {
	base, ok := w.rules.hooks[name]
	if !ok || w.ended {
		return nil
	}
	w.at = name
	v, err := w.chain(base, 0)
	if err != nil {
		return fmt.Errorf("hook %s: %w", name, err)
	}
	fate, ended := map[verdictKind]journey.Fate{drop: journey.Dropped, reject: journey.Rejected}[v]
	if ended {
		w.ended, w.mark, w.remembered = true, 0, nil
		w.outcome = journey.Outcome{Fate: fate}
	}
	return nil
}

// deepest is how deep chains may lead to one another (NFT_JUMP_STACK_SIZE).
const deepest = 16

// chain walks one chain; matched and leave say that its end was reached.
func (w *walk) chain(name string, depth int) (verdictKind, error) {
	if depth >= deepest {
		return matched, errors.New("chains lead too deep")
	}
	for _, r := range w.rules.chains[name].rules {
		v, err := w.rule(r)
		if err != nil {
			return matched, fmt.Errorf("%s: %s: %w", name, r.text, err)
		}
		kind := v.kind
		if kind == jump || kind == goTo {
			if kind, err = w.chain(v.chain, depth+1); err != nil {
				return matched, err
			}
			if v.kind == goTo {
				return kind, nil // nothing comes back to this chain
			}
		}
		switch kind {
		case matched, unmatched:
		case leave:
			return matched, nil
		default:
			return kind, nil
		}
	}
	return matched, nil
}

func (w *walk) rule(r *rule) (verdict, error) {
	for _, s := range r.steps {
		if v, err := s(w); err != nil || v.kind != matched {
			return v, err
		}
	}
	return verdict{}, nil
}

func (w *walk) masquerade() (verdict, error) {
	if w.at != "postrouting" {
		return verdict{}, fmt.Errorf("masquerades in hook %s", w.at)
	}
	w.outcome.Masquerade = true
	return verdict{kind: accept}, nil
}

// dnat translates to what a map holds for the key; on a miss the rule does not match.
func (p *ruleParser) dnat() (step, error) {
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	if !p.eat("map") {
		return nil, errors.New("dnat: want a map")
	}
	ip, _, _ := strings.Cut(key[0].typeof, " ")
	if ip == "meta" {
		ip = map[bool]string{true: "ip", false: "ip6"}[p.rules.family.Bits() == 32]
	}
	s, err := p.set(key, ip+" daddr . th dport")
	slots := key[len(key)-1].modulus
	return func(w *walk) (verdict, error) {
		to, found := "", false
		switch s := s(); {
		case s.dynamic:
			to, found = w.recall(s)
		case slots == 0:
			to, found = s.elements[keyText(w, key)]
		default:
			to, found = w.draw(s, keyText(w, key), slots)
		}
		if !found {
			return verdict{kind: unmatched}, nil
		}
		return w.translate(to)
	}, err
}

// draw takes one slot by chance: each that is filled is as likely as the others, what is left is a miss.
func (w *walk) draw(s *set, key string, slots int) (string, bool) {
	left := slots
	for slot := range slots {
		to, filled := s.elements[key+" . "+strconv.Itoa(slot)]
		if filled && w.dice.Roll(1/float64(left)) {
			return to, true
		}
		if filled {
			left--
		}
	}
	return "", false
}

// recall is what packets have put into a set, if it is young enough.
func (w *walk) recall(s *set) (string, bool) {
	for memory, age := range w.memory {
		if to, ok := strings.CutPrefix(memory, memoryOf(s.name, "")); ok && age <= s.timeout {
			return to, true
		}
	}
	return "", false
}

func (w *walk) translate(to string) (verdict, error) {
	addr, port, _ := strings.Cut(to, " . ")
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return verdict{}, fmt.Errorf("endpoint %q: %w", to, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return verdict{}, fmt.Errorf("endpoint %q: %w", to, err)
	}
	if w.at != "prerouting" && w.at != "output" {
		return verdict{}, fmt.Errorf("translates in hook %s", w.at)
	}
	w.outcome.To = netip.AddrPortFrom(a, uint16(n))
	w.packet.Dst, w.packet.DPort = a, uint16(n)
	return verdict{kind: accept}, nil
}
