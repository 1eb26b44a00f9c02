package nftrace

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Ruleset is the rules of one family. It is immutable; any number of goroutines may trace through it.
type Ruleset struct {
	family fwd.Family
	chains map[string]*chain
	sets   map[string]*set
	// hooks are the names of the base chains by where they stand.
	hooks map[string]string
}

type chain struct{ rules []*rule }

// set is a set, or a map if it has data. Keys and data are as they are written: an element is found by the text of its key.
type set struct {
	name string
	// typeof is the fields of the key, and of the data.
	typeof, data string
	elements     map[string]string
	// dynamic: its elements come from packets, and stay for so many seconds.
	dynamic bool
	timeout uint32
}

// Parse reads one table of one family. A statement that it does not know, and a name of nothing, are errors that quote the
// line.
func Parse(f fwd.Family, text string) (*Ruleset, error) {
	p := parser{rules: &Ruleset{family: f, chains: map[string]*chain{}, sets: map[string]*set{}, hooks: map[string]string{}}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("parse %q: %w", line, err)
		}
	}
	if p.depth != 0 {
		return nil, errors.New("parse rules: the text ends inside a block")
	}
	return p.rules, p.rules.link()
}

// parser knows in which block it is: depth 1 is the table, 2 a chain or a set in it.
type parser struct {
	rules *Ruleset
	depth int
	name  string
	chain *chain
	set   *set
	// elements: more of them follow in the set.
	elements bool
}

func (p *parser) line(line string) error {
	words := strings.Fields(line)
	switch {
	case line == "}" && p.depth > 0:
		p.depth--
		p.chain, p.set = nil, nil
		return nil
	case p.depth == 0:
		if ip := map[fwd.Family]string{fwd.IPv4: "ip", fwd.IPv6: "ip6"}[p.rules.family]; !slices.Equal(words, []string{"table", ip, "fairlead", "{"}) {
			return fmt.Errorf("want table %s fairlead", ip)
		}
		p.depth++
		return nil
	case p.depth == 1:
		return p.block(words)
	case p.chain != nil:
		return p.inChain(line, words)
	}
	return p.inSet(line, words)
}

func (p *parser) block(words []string) error {
	if len(words) != 3 || words[2] != "{" {
		return errors.New("want a chain, a set or a map")
	}
	p.depth++
	p.name = words[1]
	switch words[0] {
	case "chain": // it comes twice, first without its rules
		if p.rules.chains[p.name] == nil {
			p.rules.chains[p.name] = &chain{}
		}
		p.chain = p.rules.chains[p.name]
	case "set", "map":
		p.set = &set{name: p.name, elements: map[string]string{}}
		p.rules.sets[p.name] = p.set
	default:
		return fmt.Errorf("unknown block %s", words[0])
	}
	return nil
}

func (p *parser) inChain(line string, words []string) error {
	if words[0] == "type" {
		if len(words) != 8 || strings.Join(words[:3], " ") != "type nat hook" || strings.Join(words[6:], " ") != "policy accept;" {
			return errors.New("want a base chain of type nat with policy accept")
		}
		if other, ok := p.rules.hooks[words[3]]; ok && other != p.name {
			return fmt.Errorf("hook %s has two chains", words[3])
		}
		p.rules.hooks[words[3]] = p.name
		return nil
	}
	r, err := parseRule(p.rules, words)
	if err != nil {
		return err
	}
	r.text = line
	p.chain.rules = append(p.chain.rules, r)
	return nil
}

func (p *parser) inSet(line string, words []string) error {
	switch {
	case words[0] == "typeof":
		p.set.typeof, p.set.data, _ = strings.Cut(strings.TrimPrefix(line, "typeof "), " : ")
		return nil
	case line == "flags dynamic,timeout":
		p.set.dynamic = true
		return nil
	case words[0] == "size" && len(words) == 2:
		return nil
	}
	if first, ok := strings.CutPrefix(line, "elements = { "); ok {
		line, p.elements = first, true
	}
	if !p.elements {
		return errors.New("unknown property of a set")
	}
	element, last := strings.CutSuffix(line, " }")
	p.elements = !last
	element = strings.TrimSuffix(element, ",")
	key, value, mapped := strings.Cut(element, " : ")
	if mapped != (p.set.data != "") {
		return errors.New("element does not fit its set")
	}
	if _, twice := p.set.elements[key]; twice {
		return errors.New("element comes twice")
	}
	p.set.elements[key] = value
	return nil
}

// link finds what rules and elements name.
func (r *Ruleset) link() error {
	for name, c := range r.chains {
		for _, rule := range c.rules {
			for _, check := range rule.checks {
				if err := check(); err != nil {
					return fmt.Errorf("parse %q in chain %s: %w", rule.text, name, err)
				}
			}
		}
	}
	for name, s := range r.sets {
		for key, value := range s.elements {
			if to, ok := strings.CutPrefix(value, "jump "); s.data == "verdict" && (!ok || r.chains[to] == nil) {
				return fmt.Errorf("parse element %s of %s: %q leads nowhere", key, name, value)
			}
		}
	}
	return nil
}
