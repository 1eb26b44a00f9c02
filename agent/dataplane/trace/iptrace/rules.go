// Package iptrace walks packets over rules of iptables as text, without a kernel: it says what becomes of the first packet
// of a connection, over all choices that chance may make.
//
// Input are the text of iptables-save or iptables-restore, of one family, and a packet; output is a trace.Outcome. It was
// written from the manual, not from the backend, and it refuses any option that it does not know: so a plan that it agrees
// with says what it is meant to say. Its neighbours are the traces of package trace, and the tests that walk them.
package iptrace

import (
	"fmt"
	"slices"
	"strings"
)

// Rules are tables of chains.
type Rules struct{ chains map[string][]rule } // by "table chain"

// rule is a list of conditions and a target.
type rule struct {
	line       string
	conditions []condition
	jump, goTo string
	options    map[string]string // of the target
}

// condition is an option of a match with its value; module is the match that it belongs to, "" for the basic ones.
type condition struct {
	module, option, value string
	not                   bool
}

// Parse reads tables. An unknown syntax is an error; unknown options are found by walking.
func Parse(text string) (*Rules, error) {
	r := &Rules{chains: map[string][]rule{}}
	table := ""
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line == "COMMIT" || strings.HasPrefix(line, "-X "):
		case line[0] == '*':
			table = line[1:]
		case line[0] == ':':
			name, _, _ := strings.Cut(line[1:], " ")
			if _, twice := r.chains[table+" "+name]; twice {
				return nil, fmt.Errorf("line %d: chain %s twice", n+1, name)
			}
			r.chains[table+" "+name] = nil
		case strings.HasPrefix(line, "-A "):
			name, options, _ := strings.Cut(line[3:], " ")
			if _, declared := r.chains[table+" "+name]; !declared {
				return nil, fmt.Errorf("line %d: chain %s is not declared", n+1, name)
			}
			parsed, err := parseRule(words(options))
			if err != nil {
				return nil, fmt.Errorf("line %d: %w: %s", n+1, err, line)
			}
			parsed.line = line
			r.chains[table+" "+name] = append(r.chains[table+" "+name], parsed)
		default:
			return nil, fmt.Errorf("line %d: cannot read %q", n+1, line)
		}
	}
	return r, nil
}

// flags are options without a value.
func flags() []string {
	return []string{"--reap", "--rsource", "--set", "--update", "--rcheck", "--random-fully", "--persistent"}
}

func parseRule(words []string) (rule, error) {
	r := rule{options: map[string]string{}}
	module, not := "", false
	for i := 0; i < len(words); i++ {
		option, value := words[i], ""
		if option == "!" {
			not = true
			continue
		}
		if !strings.HasPrefix(option, "-") {
			return r, fmt.Errorf("%q is no option", option)
		}
		if !slices.Contains(flags(), option) {
			if i++; i == len(words) {
				return r, fmt.Errorf("%s has no value", option)
			}
			value = words[i]
		}
		switch {
		case option == "-j":
			r.jump = value
		case option == "-g":
			r.goTo = value
		case r.jump != "":
			r.options[option] = value
		case option == "-m":
			module = value
		case option == "-s" || option == "-d" || option == "-i" || option == "-o" || option == "-p":
			r.conditions, not = append(r.conditions, condition{"", option, value, not}), false
		default:
			r.conditions, not = append(r.conditions, condition{module, option, value, not}), false
		}
	}
	if not {
		return r, fmt.Errorf("! before nothing")
	}
	return r, nil
}

// words splits at spaces outside of quotes.
func words(s string) []string {
	quoted := false
	fields := strings.FieldsFunc(s, func(c rune) bool {
		if c == '"' {
			quoted = !quoted
		}
		return c == ' ' && !quoted
	})
	for i := range fields {
		fields[i] = strings.Trim(fields[i], `"`)
	}
	return fields
}
