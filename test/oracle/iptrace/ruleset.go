package iptrace

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Ruleset is the rules of one family. It is immutable; any number of goroutines may trace through it.
type Ruleset struct {
	family fwd.Family
	tables map[string]map[string]*chain // table, chain
}

// chain is a list of rules; accept is the policy of a built-in one.
type chain struct {
	rules   []*rule
	builtin bool
	drop    bool
}

// rule is one line. It applies if all matches hold, in this order: some remember or roll dice, and do so only if those
// before them held.
type rule struct {
	text    string
	matches []match
	target  target
}

type match func(*walk) bool

// Parse reads tables in the format of iptables-save, or what iptables-restore --noflush takes: comments, "*table",
// ":CHAIN policy [counters]" (which empties the chain if it is known), "-A", "-I CHAIN rule", "-X CHAIN", "COMMIT". A table
// may come in several pieces. An unknown option and a jump to a chain that is not there are errors that quote the line.
func Parse(f fwd.Family, text string) (*Ruleset, error) {
	p := parser{rules: &Ruleset{family: f, tables: map[string]map[string]*chain{}}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("parse rule %q: %w", line, err)
		}
	}
	return p.rules, p.rules.link()
}

type parser struct {
	rules *Ruleset
	table map[string]*chain
}

func (p *parser) line(line string) error {
	if name, ok := strings.CutPrefix(line, "*"); ok {
		if p.rules.tables[name] == nil {
			p.rules.tables[name] = map[string]*chain{}
		}
		p.table = p.rules.tables[name]
		return nil
	}
	if line == "COMMIT" {
		p.table = nil
		return nil
	}
	if p.table == nil {
		return errors.New("outside of a table")
	}
	words, err := split(line)
	if err != nil {
		return err
	}
	if name, ok := strings.CutPrefix(words[0], ":"); ok {
		return p.declare(name, words[1:])
	}
	if len(words) < 2 {
		return errors.New("want a command and a chain")
	}
	c := p.table[words[1]]
	if c == nil {
		return fmt.Errorf("no chain %s", words[1])
	}
	switch words[0] {
	case "-A", "-I":
		r, err := parseRule(p.rules.family, words[2:])
		if err != nil {
			return err
		}
		r.text = line
		if words[0] == "-I" {
			c.rules = append([]*rule{r}, c.rules...)
			return nil
		}
		c.rules = append(c.rules, r)
	case "-X":
		delete(p.table, words[1])
	default:
		return fmt.Errorf("unknown command %s", words[0])
	}
	return nil
}

func (p *parser) declare(name string, words []string) error {
	if len(words) == 0 {
		return errors.New("chain without a policy")
	}
	switch words[0] {
	case "-":
		p.table[name] = &chain{}
	case "ACCEPT", "DROP":
		if p.table[name] == nil {
			p.table[name] = &chain{}
		}
		p.table[name].builtin, p.table[name].drop = true, words[0] == "DROP"
	default:
		return fmt.Errorf("unknown policy %s", words[0])
	}
	return nil
}

// link finds the chains that rules jump to.
func (r *Ruleset) link() error {
	for name, table := range r.tables {
		for _, c := range table {
			for _, rule := range c.rules {
				if to := rule.target.chain; to != "" && table[to] == nil {
					return fmt.Errorf("parse rule %q: table %s has no chain %s", rule.text, name, to)
				}
			}
		}
	}
	return nil
}

// split cuts a line into words; double quotes hold one together, and a backslash takes the next character as it is.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quoted, open, escaped := false, false, false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted, open = !quoted, true
		case c == ' ' && !quoted:
			if open {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
		default:
			word.WriteRune(c)
			open = true
		}
	}
	if quoted {
		return nil, errors.New("quote without an end")
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}
