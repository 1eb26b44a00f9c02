package iptrace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/test/oracle/journey"
)

// module reads the options of one match module, up to the first word that is not one of its options.
func (p *ruleParser) module(name string) error {
	var m match
	var err error
	switch name {
	case "comment":
		if o := p.next(); o != "--comment" {
			return fmt.Errorf("comment: unknown option %s", o)
		}
		p.next()
		return nil
	case "tcp", "udp", "sctp", "multiport":
		m, err = p.ports()
	case "mark":
		m, err = p.markMatch()
	case "addrtype":
		m, err = p.addrtype()
	case "conntrack":
		m, err = p.conntrack()
	case "statistic":
		m, err = p.statistic()
	case "recent":
		m, err = p.recent()
	case "bpf":
		m, err = p.bpf()
	default:
		return fmt.Errorf("unknown module %s", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	p.modules = append(p.modules, m)
	return nil
}

// peek takes a "!" and returns the option that follows if it is one of a module's.
func (p *ruleParser) peek(options ...string) (string, bool) {
	words := p.words
	if len(words) > 1 && words[0] == "!" {
		words = words[1:]
	}
	if len(words) == 0 || !slices.Contains(options, words[0]) {
		return "", false
	}
	if p.next() == "!" {
		p.not = true
		p.next()
	}
	return words[0], true
}

// ports matches destination ports; "-p tcp -m tcp" alone, which iptables-save prints, matches all. kube-proxy writes
// "-m tcp -p tcp -d ADDRESS --dport PORT", so the options of the module may come after those of the header.
func (p *ruleParser) ports() (match, error) {
	at := slices.IndexFunc(p.words, func(w string) bool { return w == "--dport" || w == "--dports" })
	if at < 0 {
		return func(*walk) bool { return true }, nil
	}
	if at+1 >= len(p.words) || at > 0 && p.words[at-1] == "!" {
		return nil, errors.New("--dport: want a value, without negation")
	}
	var ranges [][2]uint16
	for r := range strings.SplitSeq(p.words[at+1], ",") {
		low, high, ranged := strings.Cut(r, ":")
		if !ranged {
			high = low
		}
		a, errA := strconv.ParseUint(low, 10, 16)
		b, errB := strconv.ParseUint(high, 10, 16)
		if err := errors.Join(errA, errB); err != nil {
			return nil, fmt.Errorf("--dport: %w", err)
		}
		ranges = append(ranges, [2]uint16{uint16(a), uint16(b)})
	}
	p.words = slices.Delete(slices.Clone(p.words), at, at+2)
	return func(w *walk) bool {
		for _, r := range ranges {
			if w.packet.DPort >= r[0] && w.packet.DPort <= r[1] {
				return true
			}
		}
		return false
	}, nil
}

func (p *ruleParser) markMatch() (match, error) {
	if _, ok := p.peek("--mark"); !ok {
		return nil, errors.New("want --mark")
	}
	value, mask, err := parseMark(p.next())
	not := p.negation()
	return func(w *walk) bool { return (w.mark&mask == value) != not }, err
}

func (p *ruleParser) addrtype() (match, error) {
	var all []match
	for option, ok := p.peek("--src-type", "--dst-type"); ok; option, ok = p.peek("--src-type", "--dst-type") {
		not := p.negation()
		if kind := p.next(); kind != "LOCAL" {
			return nil, fmt.Errorf("unknown type %s", kind)
		}
		all = append(all, func(w *walk) bool {
			a := w.packet.Dst
			if option == "--src-type" {
				a = w.packet.Src
			}
			return w.host.Owns(a) != not
		})
	}
	if len(all) == 0 {
		return nil, errors.New("want --src-type or --dst-type")
	}
	return both(all), nil
}

func both(all []match) match {
	return func(w *walk) bool {
		for _, m := range all {
			if !m(w) {
				return false
			}
		}
		return true
	}
}

func (p *ruleParser) conntrack() (match, error) {
	if _, ok := p.peek("--ctstate"); !ok {
		return nil, errors.New("want --ctstate")
	}
	not, states := p.negation(), strings.Split(p.next(), ",")
	for _, s := range states {
		if !slices.Contains([]string{"INVALID", "NEW", "RELATED", "ESTABLISHED", "DNAT"}, s) {
			return nil, fmt.Errorf("unknown state %s", s)
		}
	}
	return func(w *walk) bool {
		state := w.packet.State
		if state == "" {
			state = journey.New
		}
		return (slices.Contains(states, string(state)) || w.outcome.To.IsValid() && slices.Contains(states, "DNAT")) != not
	}, nil
}

func (p *ruleParser) statistic() (match, error) {
	if len(p.words) < 4 || !slices.Equal(p.words[:3], []string{"--mode", "random", "--probability"}) {
		return nil, errors.New("want --mode random --probability P")
	}
	probability, err := strconv.ParseFloat(p.words[3], 64)
	if err != nil || probability <= 0 || probability > 1 {
		return nil, fmt.Errorf("probability %s: want one above 0 and up to 1", p.words[3])
	}
	p.words = p.words[4:]
	return func(w *walk) bool { return w.dice.Roll(probability) }, nil
}

// recent knows --set, which remembers the client, and --rcheck and --update, which ask whether it was remembered; update
// remembers anew.
func (p *ruleParser) recent() (match, error) {
	var verb, name string
	seconds := uint64(0)
	options := []string{"--name", "--set", "--rcheck", "--update", "--seconds", "--reap", "--rsource", "--mask"}
	for option, ok := p.peek(options...); ok; option, ok = p.peek(options...) {
		var err error
		switch option {
		case "--name":
			name = p.next()
		case "--seconds":
			seconds, err = strconv.ParseUint(p.next(), 10, 32)
		case "--mask":
			mask, bad := netip.ParseAddr(p.next())
			if bad != nil || slices.ContainsFunc(mask.AsSlice(), func(b byte) bool { return b != 0xff }) {
				err = errors.New("--mask: want the whole address")
			}
		case "--reap", "--rsource":
		default:
			verb = option
		}
		if err != nil {
			return nil, err
		}
	}
	if verb == "" || name == "" || (verb == "--set") != (seconds == 0) {
		return nil, errors.New("want a name and either --set, or --rcheck or --update with --seconds")
	}
	return func(w *walk) bool {
		if verb != "--set" {
			age, known := w.memory[name]
			if !known || uint64(age) > seconds {
				return false
			}
		}
		if verb != "--rcheck" {
			w.remember(name)
		}
		return true
	}, nil
}
