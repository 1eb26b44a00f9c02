package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// parseRule reads the options of one rule as iptables-save prints them. It knows what our plans use and no more: anything
// else is an error, and by that a rule that is not ours.
func parseRule(f fwd.Family, options []string) (Rule, error) {
	p := ruleParser{family: f, words: options}
	for len(p.words) > 0 && p.err == nil {
		p.option(p.next())
	}
	if p.err == nil && p.negated {
		p.fail("negation at the end")
	}
	return p.rule, p.err
}

type ruleParser struct {
	family  fwd.Family
	words   []string
	negated bool
	rule    Rule
	err     error
}

func (p *ruleParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("parse rule: "+format, args...)
	}
}

func (p *ruleParser) next() string {
	if len(p.words) == 0 {
		p.fail("option without a value")
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// not takes the negation that came before an option.
func (p *ruleParser) not() bool {
	n := p.negated
	p.negated = false
	return n
}

func (p *ruleParser) option(o string) {
	if p.negated && !slices.Contains([]string{"-s", "-d", "--ctstate", "--mark"}, o) {
		p.fail("%s: unknown negation", o)
	}
	r := &p.rule
	switch o {
	case "!":
		p.negated = true
	case "-s":
		r.Src = p.addr()
	case "-d":
		r.Dst = p.addr()
	case "-i":
		r.In = p.next()
	case "-p":
		r.Protocol = p.protocol()
	case "--dport":
		r.DPort = p.ports()
	case "--src-type", "--dst-type":
		p.want("LOCAL")
		if o == "--src-type" {
			r.SrcLocal = true
		} else {
			r.DstLocal = true
		}
	case "--ctstate":
		r.State = StateMatch{Not: p.not(), States: p.states()}
	case "--mark":
		r.Mark = MarkMatch{Not: p.not(), MarkValue: p.mark()}
	case "--bytecode":
		p.want(sameAddrProgram(p.family))
		r.SameAddr = true
	case "--comment":
		r.Comment = p.next()
	case "-m":
		p.module(p.next())
	case "-j":
		p.target(p.next())
	case "-g":
		r.Verdict, r.Chain = Goto, p.next()
	default:
		p.fail("%s: unknown option", o)
	}
}

func (p *ruleParser) want(word string) {
	if w := p.next(); w != word {
		p.fail("%q: want %q", w, word)
	}
}

// module takes those modules whose options need to stand together.
func (p *ruleParser) module(name string) {
	switch name {
	case "tcp", "udp", "sctp", "addrtype", "conntrack", "mark", "bpf", "comment":
	case "statistic":
		p.want("--mode")
		p.want("random")
		p.want("--probability")
		v, err := strconv.ParseFloat(p.next(), 64)
		if err != nil || v <= 0 || v >= 1 {
			p.fail("probability out of range")
		}
		p.rule.Probability = uint32(math.Round(v * certain))
	case "recent":
		p.recent()
	default:
		p.fail("-m %s: unknown module", name)
	}
}

func (p *ruleParser) recent() {
	r := &p.rule.Recent
	for set := p.next(); p.err == nil; set = p.next() {
		switch set {
		case "--set", "--update", "--reap":
		case "--seconds":
			r.Seconds = uint32(p.number(32))
		case "--name":
			r.Name = p.next()
		case "--mask":
			p.want(hostMask(p.family))
		case "--rsource":
			return
		default:
			p.fail("%s: unknown option of recent", set)
		}
	}
}

func (p *ruleParser) target(name string) {
	r := &p.rule
	for v := Accept; v <= Masquerade; v++ {
		if verdictName(v) == name {
			r.Verdict = v
		}
	}
	switch r.Verdict {
	case None, Jump, Goto:
		r.Verdict, r.Chain = Jump, name
	case Reject:
		p.want("--reject-with")
		p.want(rejectWith(p.family, r.Protocol))
	case MarkPacket:
		p.want("--set-xmark")
		r.SetMark = p.mark()
	case DNAT:
		p.want("--to-destination")
		to, err := netip.ParseAddrPort(p.next())
		if err != nil {
			p.fail("DNAT: %w", err)
		}
		r.To = to
	case Masquerade:
		if len(p.words) > 0 {
			p.want("--random-fully")
			r.RandomFully = true
		}
	case Accept, Drop, Return:
	}
}

func (p *ruleParser) addr() AddrMatch {
	text, mask, masked := strings.Cut(p.next(), "/")
	a, err := netip.ParseAddr(text)
	if err != nil || fwd.FamilyOf(a) != p.family {
		p.fail("%s: no %v address", text, p.family)
		return AddrMatch{}
	}
	m := toAddr(a)
	if bits, err := strconv.Atoi(mask); err == nil && bits >= 0 && bits <= a.BitLen() {
		m = toPrefix(netip.PrefixFrom(a, bits))
	} else if masked {
		holes, err := netip.ParseAddr(mask)
		if err != nil || holes.BitLen() != a.BitLen() {
			p.fail("%s: no mask", mask)
		}
		m = AddrMatch{Addr: a, Mask: holes}
	}
	m.Not = p.not()
	return m
}

func (p *ruleParser) protocol() fwd.Protocol {
	name := p.next()
	for _, proto := range fwd.Protocols() {
		if protocolName(proto) == name || strconv.Itoa(int(proto.IANA())) == name {
			return proto
		}
	}
	p.fail("protocol %s: unknown", name)
	return 0
}

func (p *ruleParser) ports() PortRange {
	low, high, ranged := strings.Cut(p.next(), ":")
	if !ranged {
		high = low
	}
	l, err := strconv.ParseUint(low, 10, 16)
	h, err2 := strconv.ParseUint(high, 10, 16)
	if err != nil || err2 != nil {
		p.fail("ports %s:%s: want numbers", low, high)
	}
	return PortRange{Low: uint16(l), High: uint16(h)}
}

func (p *ruleParser) states() ConnState {
	var states ConnState
	for name := range strings.SplitSeq(p.next(), ",") {
		known := false
		for _, s := range stateNames() {
			if s.name == name {
				states, known = states|s.state, true
			}
		}
		if !known {
			p.fail("state %s: unknown", name)
		}
	}
	return states
}

func (p *ruleParser) mark() MarkValue {
	value, mask, masked := strings.Cut(p.next(), "/")
	m := MarkValue{Mask: math.MaxUint32}
	for _, part := range []struct {
		text string
		to   *uint32
		want bool
	}{{value, &m.Value, true}, {mask, &m.Mask, masked}} {
		if !part.want {
			continue
		}
		n, err := strconv.ParseUint(part.text, 0, 32)
		if err != nil {
			p.fail("mark %s: want numbers", part.text)
		}
		*part.to = uint32(n)
	}
	return m
}

func (p *ruleParser) number(bits int) uint64 {
	w := p.next()
	n, err := strconv.ParseUint(w, 10, bits)
	if err != nil {
		p.fail("%q: want a number", w)
	}
	return n
}

// splitWords splits a line of iptables-save: words between spaces; "…" is one word, in which \ takes the next byte as it is.
// The words are appended to words, as parts of the line where they can be.
func splitWords(words []string, line string) []string {
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		end := strings.IndexByte(line, ' ')
		if end < 0 {
			end = len(line)
		}
		if !strings.Contains(line[:end], `"`) {
			words = append(words, line[:end])
			line = line[end:]
			continue
		}
		if end = strings.IndexByte(line[1:], '"') + 1; line[0] == '"' && end > 0 && (end+1 == len(line) || line[end+1] == ' ') && !strings.Contains(line[:end], `\`) {
			words = append(words, line[1:end])
			line = line[end+1:]
			continue
		}
		var word string
		word, line = quotedWord(line)
		words = append(words, word)
	}
	return words
}

// quotedWord takes a word with quotes anywhere in it off the line.
func quotedWord(line string) (word, rest string) {
	var b []byte
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quoted && i+1 < len(line):
			i++
			b = append(b, line[i])
		case c == '"':
			quoted = !quoted
		case c == ' ' && !quoted:
			return string(b), line[i:]
		default:
			b = append(b, c)
		}
	}
	return string(b), ""
}
