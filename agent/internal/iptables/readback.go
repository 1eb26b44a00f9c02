package iptables

import (
	"bytes"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// readback is what iptables-save says about us. It is an io.Writer for the output of one or several runs of that, of which it
// keeps next to nothing: a table can be many times as long as what we know of it.
type readback struct {
	family fwd.Family
	// chains of ours, with hashes comparable to those of diff.
	chains held
	// builtin holds the rules of the built-in chains that anchors stand in, in order.
	builtin map[chainKey][]builtinRule
	// incompatible: a table holds rules that iptables cannot show.
	incompatible bool

	table string
	// rest is a line without its end, line what a rule is rendered to, words what it consists of: kept to be used again.
	rest, line []byte
	words      []string
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

// Write implements io.Writer. It never fails.
func (rb *readback) Write(save []byte) (int, error) {
	n := len(save)
	for {
		end := bytes.IndexByte(save, '\n')
		if end < 0 {
			rb.rest = append(rb.rest, save...)
			return n, nil
		}
		if line := save[:end]; len(rb.rest) == 0 {
			rb.parse(line)
		} else {
			rb.parse(append(rb.rest, line...))
			rb.rest = rb.rest[:0]
		}
		save = save[end+1:]
	}
}

// parse takes one line.
func (rb *readback) parse(line []byte) {
	switch line = bytes.TrimSpace(line); {
	case len(line) == 0:
	case line[0] == '#':
		rb.incompatible = rb.incompatible || bytes.Contains(line, []byte("is incompatible, use 'nft' tool"))
	case line[0] == '*':
		rb.table = string(line[1:])
	case line[0] == ':':
		name, _, _ := strings.Cut(string(line[1:]), " ")
		if strings.HasPrefix(name, chainPrefix) {
			rb.chains[chainKey{rb.table, name}] = emptyHash
		}
	case bytes.HasPrefix(line, []byte("-A ")):
		name, options, _ := strings.Cut(string(line[3:]), " ")
		k := chainKey{rb.table, name}
		if strings.HasPrefix(name, chainPrefix) {
			rb.line = rb.appendCanonical(rb.line[:0], name, options)
			rb.chains[k] = hashRules(rb.chains[k], rb.line)
		} else {
			rb.builtin[k] = append(rb.builtin[k], readBuiltin(rb.family, options))
		}
	}
}

// appendCanonical adds the rule as we would write it; a rule that we would not write stays as it is, and so differs.
func (rb *readback) appendCanonical(b []byte, chain, options string) []byte {
	b = append(append(b, "-A "...), chain...)
	rb.words = splitWords(rb.words[:0], options)
	if r, err := parseRule(rb.family, rb.words); err == nil {
		return append(appendRule(b, rb.family, r), '\n')
	}
	return append(append(append(b, ' '), options...), '\n')
}

func readBuiltin(f fwd.Family, options string) builtinRule {
	words := splitWords(nil, options)
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
