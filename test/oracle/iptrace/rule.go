package iptrace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// target is what a rule does.
type target struct {
	verdict verdict
	chain   string // of jump and goto
	final   bool   // a goto: do not come back
	to      netip.AddrPort
	mark    func(uint32) uint32
}

type verdict uint8

const (
	nothing verdict = iota // goes on with the next rule
	jump
	accept
	drop
	reject
	leave // RETURN
	mark
	dnat
	masquerade
)

// ruleParser eats the words of one rule.
type ruleParser struct {
	family fwd.Family
	words  []string
	not    bool // there was a "!" before the option
	rule   rule
	// header are the matches on the packet's header, which the kernel looks at before all modules.
	header, modules []match
}

func parseRule(f fwd.Family, words []string) (*rule, error) {
	p := ruleParser{family: f, words: words}
	for len(p.words) > 0 {
		option := p.next()
		if option == "!" {
			p.not = true
			continue
		}
		if err := p.option(option); err != nil {
			return nil, err
		}
		if p.not {
			return nil, fmt.Errorf("%s: cannot be negated", option)
		}
	}
	p.rule.matches = append(p.header, p.modules...)
	return &p.rule, nil
}

func (p *ruleParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// negation takes the "!" that came before the option.
func (p *ruleParser) negation() bool {
	n := p.not
	p.not = false
	return n
}

func (p *ruleParser) option(name string) error {
	switch name {
	case "-s":
		return p.address(func(w *walk) netip.Addr { return w.packet.Src })
	case "-d":
		return p.address(func(w *walk) netip.Addr { return w.packet.Dst })
	case "-i":
		p.device()
		return nil
	case "-p":
		return p.protocol()
	case "-m":
		return p.module(p.next())
	case "-j", "-g":
		p.rule.target.final = name == "-g"
		return p.target(p.next())
	}
	return fmt.Errorf("unknown option %s", name)
}

// address matches ADDRESS, ADDRESS/LENGTH, or ADDRESS/MASK, whose mask may have holes.
func (p *ruleParser) address(of func(*walk) netip.Addr) error {
	text, masked, hasMask := strings.Cut(p.next(), "/")
	want, err := netip.ParseAddr(text)
	if err != nil || fwd.FamilyOf(want) != p.family {
		return fmt.Errorf("address %q: want one of %v", text, p.family)
	}
	length := want.BitLen()
	mask := prefixMask(length, length)
	if bits, err := strconv.Atoi(masked); err == nil && bits >= 0 && bits <= length {
		mask = prefixMask(length, bits)
	} else if hasMask {
		holes, err := netip.ParseAddr(masked)
		if err != nil || holes.BitLen() != length {
			return fmt.Errorf("mask %q: want a length or a mask of %v", masked, p.family)
		}
		mask = holes.AsSlice()
	}
	bits, not := want.AsSlice(), p.negation()
	p.header = append(p.header, func(w *walk) bool {
		have := of(w).As16()
		tail := have[16-len(bits):]
		for i := range bits {
			if (tail[i]^bits[i])&mask[i] != 0 {
				return not
			}
		}
		return !not
	})
	return nil
}

func prefixMask(length, bits int) []byte {
	mask := make([]byte, length/8)
	for i := range bits {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return mask
}

func (p *ruleParser) device() {
	name, not := p.next(), p.negation()
	prefix, open := strings.CutSuffix(name, "+")
	p.header = append(p.header, func(w *walk) bool {
		if open {
			return strings.HasPrefix(w.packet.In, prefix) != not
		}
		return (w.packet.In == name) != not
	})
}

func (p *ruleParser) protocol() error {
	want, err := fwd.ParseProtocol(strings.ToUpper(p.next()))
	if err != nil {
		return err
	}
	not := p.negation()
	p.header = append(p.header, func(w *walk) bool { return (w.packet.Protocol == want) != not })
	return nil
}

func (p *ruleParser) target(name string) error {
	t := &p.rule.target
	simple := map[string]verdict{"ACCEPT": accept, "DROP": drop, "RETURN": leave}
	switch v, ok := simple[name]; {
	case ok:
		t.verdict = v
	case name == "REJECT":
		t.verdict = reject
		if len(p.words) > 0 && p.next() == "--reject-with" {
			p.next()
		}
	case name == "MASQUERADE":
		t.verdict = masquerade
		if slices.Equal(p.words, []string{"--random-fully"}) {
			p.next()
		}
	case name == "DNAT":
		t.verdict = dnat
		return p.destination()
	case name == "MARK":
		t.verdict = mark
		return p.mark()
	case name == "":
		return errors.New("target is missing")
	default:
		t.verdict, t.chain = jump, name
	}
	return nil
}

func (p *ruleParser) destination() error {
	if o := p.next(); o != "--to-destination" {
		return fmt.Errorf("DNAT: unknown option %s", o)
	}
	to, err := netip.ParseAddrPort(p.next())
	if err != nil || fwd.FamilyOf(to.Addr()) != p.family {
		return fmt.Errorf("DNAT: want one address and port of %v", p.family)
	}
	p.rule.target.to = to
	return nil
}

// mark reads the ways to write the one operation that the kernel has: clear the bits of a mask, then flip those of a value.
func (p *ruleParser) mark() error {
	option := p.next()
	value, mask, err := parseMark(p.next())
	if err != nil {
		return fmt.Errorf("%s: %w", option, err)
	}
	switch option {
	case "--set-xmark":
	case "--set-mark":
		mask |= value
	case "--or-mark":
		mask = value
	case "--xor-mark":
		mask = 0
	default:
		return fmt.Errorf("MARK: unknown option %s", option)
	}
	p.rule.target.mark = func(m uint32) uint32 { return m&^mask ^ value }
	return nil
}

// parseMark reads VALUE or VALUE/MASK.
func parseMark(text string) (value, mask uint32, err error) {
	v, m, masked := strings.Cut(text, "/")
	if !masked {
		m = "0xffffffff"
	}
	a, errA := strconv.ParseUint(v, 0, 32)
	b, errB := strconv.ParseUint(m, 0, 32)
	return uint32(a), uint32(b), errors.Join(errA, errB)
}
