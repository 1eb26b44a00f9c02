package iptables

import (
	"fmt"
	"io"

	"github.com/fairlead/fairlead/proto/fwd"
)

// WritePlan writes what the backend would program for a table, one family, as text that iptables-restore loads: jumps
// from the built-in chains, and all chains of ours, those that lead elsewhere last, for a kernel that has all that rules may
// use. Equal input gives equal text.
func WritePlan(w io.Writer, c Config, f fwd.Family, t *fwd.Table) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return writePlan(w, newSettings(c, f, t.Node()), t)
}

func writePlan(w io.Writer, s *settings, t *fwd.Table) error {
	d, f := difference{}, s.family
	for chain := range newLayout(s, t).chains() {
		d.write = append(d.write, written{chainKey: chain.chainKey, rules: appendChain(nil, f, chain)})
	}
	for _, a := range anchors() {
		rule := append([]byte("-A "+a.Name), appendRule(nil, f, anchorRule(a.to))...)
		d.write = append(d.write, written{chainKey: a.chainKey, rules: append(rule, '\n')})
	}
	if _, err := w.Write(d.restoreInput()); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}
