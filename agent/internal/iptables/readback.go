package iptables

import (
	"bytes"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// readback is what iptables-save says about us.
type readback struct {
	family fwd.Family
	// chains of ours, with hashes comparable to those of write.
	chains held
	// builtin holds the rules of the built-in chains that anchors stand in, in order.
	builtin map[chainKey][]builtinRule
}

// builtinRule is a rule of a built-in chain.
type builtinRule struct {
	// target is the chain or verdict that it leads to; ours: a jump of ours without other conditions.
	target string
	ours   bool
}

func newReadback(f fwd.Family) *readback {
	return &readback{family: f, chains: held{}, builtin: map[chainKey][]builtinRule{}}
}

// parse takes the output of iptables-save of one or several tables.
func (rb *readback) parse(save []byte) {
	table := ""
	rules := map[chainKey][]byte{}
	for line := range bytes.Lines(save) {
		line = bytes.TrimSpace(line)
		switch {
		case len(line) == 0:
		case line[0] == '*':
			table = string(line[1:])
		case line[0] == ':':
			name, _, _ := strings.Cut(string(line[1:]), " ")
			if strings.HasPrefix(name, chainPrefix) {
				rules[chainKey{table, name}] = nil
			}
		case bytes.HasPrefix(line, []byte("-A ")):
			name, options, _ := strings.Cut(string(line[3:]), " ")
			k := chainKey{table, name}
			if strings.HasPrefix(name, chainPrefix) {
				rules[k] = rb.appendCanonical(rules[k], name, options)
			} else {
				rb.builtin[k] = append(rb.builtin[k], readBuiltin(rb.family, options))
			}
		}
	}
	for k, text := range rules {
		rb.chains[k] = hashRules(text)
	}
}

// appendCanonical adds the rule as we would write it; a rule that we would not write stays as it is, and so differs.
func (rb *readback) appendCanonical(b []byte, chain, options string) []byte {
	b = append(append(b, "-A "...), chain...)
	if r, err := parseRule(rb.family, splitWords(options)); err == nil {
		return append(appendRule(b, rb.family, r), '\n')
	}
	return append(append(append(b, ' '), options...), '\n')
}

func readBuiltin(f fwd.Family, options string) builtinRule {
	words := splitWords(options)
	var b builtinRule
	for i, w := range words[:max(0, len(words)-1)] {
		if w == "-j" || w == "-g" {
			b.target = words[i+1]
		}
	}
	r, err := parseRule(f, words)
	b.ours = err == nil && r == anchorRule(b.target)
	return b
}
