package nftrace

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

// rule is one line: steps are done in their order until one does not match or ends the rule.
type rule struct {
	text  string
	steps []step
	// checks look, when everything is read, for what the rule names.
	checks []func() error
}

// step says whether the rule goes on, and how it ends otherwise.
type step func(*walk) (verdict, error)

// verdict is how a step ends; a jump or goto has a chain.
type verdict struct {
	kind  verdictKind
	chain string
}

type verdictKind uint8

const (
	matched   verdictKind = iota
	unmatched             // the next rule
	jump
	goTo
	leave
	accept // the hook is done
	drop
	reject
)

// ruleParser eats the words of one rule.
type ruleParser struct {
	rules *Ruleset
	words []string
	rule  rule
}

func parseRule(r *Ruleset, words []string) (*rule, error) {
	p := ruleParser{rules: r, words: words}
	for len(p.words) > 0 {
		s, err := p.statement()
		if err != nil {
			return nil, err
		}
		p.rule.steps = append(p.rule.steps, s)
	}
	return &p.rule, nil
}

// eat takes the words if they come next.
func (p *ruleParser) eat(words ...string) bool {
	if len(p.words) < len(words) {
		return false
	}
	for i, w := range words {
		if p.words[i] != w {
			return false
		}
	}
	p.words = p.words[len(words):]
	return true
}

func (p *ruleParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

func (p *ruleParser) check(ok func() error) { p.rule.checks = append(p.rule.checks, ok) }

func ends(v verdict) step { return func(*walk) (verdict, error) { return v, nil } }

// matches is a step that goes on where a condition holds.
func matches(holds func(*walk) bool) step {
	return func(w *walk) (verdict, error) {
		if holds(w) {
			return verdict{}, nil
		}
		return verdict{kind: unmatched}, nil
	}
}

func (p *ruleParser) statement() (step, error) {
	switch {
	case p.eat("jump"):
		return ends(p.chain(jump)), nil
	case p.eat("goto"):
		return ends(p.chain(goTo)), nil
	case p.eat("return"):
		return ends(verdict{kind: leave}), nil
	case p.eat("drop"):
		return ends(verdict{kind: drop}), nil
	case p.eat("reject", "with", "tcp", "reset"):
		return func(w *walk) (verdict, error) {
			if w.packet.Protocol != fwd.TCP {
				return verdict{}, errors.New("answers what is not TCP by a reset")
			}
			return verdict{kind: reject}, nil
		}, nil
	case p.eat("reject"):
		return ends(verdict{kind: reject}), nil
	case p.eat("masquerade", "fully-random"):
		return (*walk).masquerade, nil
	case p.eat("dnat", map[fwd.Family]string{fwd.IPv4: "ip", fwd.IPv6: "ip6"}[p.rules.family], "to"):
		return p.dnat()
	case p.eat("update"):
		return p.update()
	case p.eat("fib"):
		return p.local()
	case p.eat("iifname"):
		return p.device()
	case p.eat("ct", "status", "dnat"):
		return matches(func(w *walk) bool { return w.outcome.To.IsValid() }), nil
	case p.eat("meta", "mark"):
		return p.mark()
	}
	return p.lookup()
}

func (p *ruleParser) chain(kind verdictKind) verdict {
	name := p.next()
	p.check(func() error {
		if p.rules.chains[name] == nil {
			return fmt.Errorf("no chain %s", name)
		}
		return nil
	})
	return verdict{kind, name}
}

// set eats the name of a set and holds that its key and data are these fields.
func (p *ruleParser) set(key []field, data string) (func() *set, error) {
	name, ok := strings.CutPrefix(p.next(), "@")
	if !ok {
		return nil, errors.New("want the name of a set")
	}
	p.check(func() error {
		s := p.rules.sets[name]
		if s == nil {
			return fmt.Errorf("no set %s", name)
		}
		if want := typeofText(key); s.typeof != want || s.data != data {
			return fmt.Errorf("set %s is of %s : %s, want %s : %s", name, s.typeof, s.data, want, data)
		}
		return nil
	})
	return func() *set { return p.rules.sets[name] }, nil
}

// lookup is a key, and what it must be.
func (p *ruleParser) lookup() (step, error) {
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	switch {
	case p.eat("vmap"):
		s, err := p.set(key, "verdict")
		return func(w *walk) (verdict, error) {
			if to, found := s().elements[keyText(w, key)]; found {
				return verdict{jump, strings.TrimPrefix(to, "jump ")}, nil
			}
			return verdict{kind: unmatched}, nil
		}, err
	case p.eat("!="):
		s, err := p.set(key, "")
		return matches(func(w *walk) bool { _, found := s().elements[keyText(w, key)]; return !found }), err
	case len(p.words) > 0 && strings.HasPrefix(p.words[0], "@"):
		s, err := p.set(key, "")
		return matches(func(w *walk) bool { _, found := s().elements[keyText(w, key)]; return found }), err
	case len(key) != 1:
		return nil, errors.New("several fields: want a set")
	}
	return p.value(key[0])
}

// value is a field that must be one value, or an address inside a prefix.
func (p *ruleParser) value(f field) (step, error) {
	text := p.next()
	if f.typeof == "meta l4proto" {
		_, err := fwd.ParseProtocol(strings.ToUpper(text))
		return matches(func(w *walk) bool { return f.of(w) == text }), err
	}
	if !strings.HasSuffix(f.typeof, "addr") {
		return nil, fmt.Errorf("%s: want a set", f.typeof)
	}
	if !strings.Contains(text, "/") {
		_, err := netip.ParseAddr(text)
		return matches(func(w *walk) bool { return f.of(w) == text }), err
	}
	prefix, err := netip.ParsePrefix(text)
	return matches(func(w *walk) bool { return prefix.Contains(netip.MustParseAddr(f.of(w))) }), err
}

func (p *ruleParser) local() (step, error) {
	side := p.next()
	if !p.eat("type", "local") || side != "saddr" && side != "daddr" {
		return nil, errors.New("fib: want saddr type local or daddr type local")
	}
	return matches(func(w *walk) bool {
		return w.host.Owns(map[string]netip.Addr{"saddr": w.packet.Src, "daddr": w.packet.Dst}[side])
	}), nil
}

func (p *ruleParser) device() (step, error) {
	name, err := strconv.Unquote(p.next())
	prefix, open := strings.CutSuffix(name, "*")
	return matches(func(w *walk) bool {
		return open && strings.HasPrefix(w.packet.In, prefix) || w.packet.In == name
	}), err
}

func (p *ruleParser) mark() (step, error) {
	switch {
	case p.eat("&"):
		bits, err := p.bits()
		if err == nil && !p.eat("!=", "0x00000000") {
			err = errors.New("mark: want a comparison with 0")
		}
		return matches(func(w *walk) bool { return w.mark&bits != 0 }), err
	case p.eat("set", "meta", "mark", "|"):
		bits, err := p.bits()
		return func(w *walk) (verdict, error) { w.mark |= bits; return verdict{}, nil }, err
	case p.eat("set", "meta", "mark", "&"):
		bits, err := p.bits()
		return func(w *walk) (verdict, error) { w.mark &= bits; return verdict{}, nil }, err
	}
	return nil, errors.New("mark: unknown operation")
}

func (p *ruleParser) bits() (uint32, error) {
	n, err := strconv.ParseUint(p.next(), 0, 32)
	if err != nil {
		return 0, fmt.Errorf("mark: %w", err)
	}
	return uint32(n), nil
}

// update is "@SET { CLIENT timeout SECONDSs : ADDRESS . PORT }".
func (p *ruleParser) update() (step, error) {
	name := p.next()
	if !p.eat("{") {
		return nil, errors.New("update: want an element")
	}
	client, err := p.field()
	if err != nil || !p.eat("timeout") {
		return nil, errors.Join(errors.New("update: want a client and a timeout"), err)
	}
	timeout, err := time.ParseDuration(p.next())
	if err != nil || !p.eat(":") {
		return nil, errors.Join(errors.New("update: want a timeout and an endpoint"), err)
	}
	endpoint, err := p.key()
	if err != nil || !p.eat("}") {
		return nil, errors.Join(errors.New("update: want an endpoint"), err)
	}
	p.words = append([]string{name}, p.words...)
	s, err := p.set([]field{client}, typeofText(endpoint))
	p.check(func() error {
		if s := s(); s != nil && s.dynamic {
			s.timeout = uint32(timeout.Seconds())
			return nil
		}
		return errors.New("update of a set that is not dynamic")
	})
	return func(w *walk) (verdict, error) {
		w.remembered = append(w.remembered, memoryOf(s().name, keyText(w, endpoint)))
		return verdict{}, nil
	}, err
}

// memoryOf names an element that packets have made.
func memoryOf(set, endpoint string) string { return set + " " + endpoint }
