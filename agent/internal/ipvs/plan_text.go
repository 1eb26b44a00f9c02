package ipvs

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// WritePlan writes what the backend would program for a table, one family, on a host whose devices carry the Node's
// addresses and no others: objects as lines, then the rules as text of iptables-restore. Equal input gives equal text.
func WritePlan(w io.Writer, c Config, f fwd.Family, t *fwd.Table) error {
	if err := c.Validate(); err != nil {
		return err
	}
	c.Rules.Families = []fwd.Family{f}
	addrs := t.Node().Addresses
	s := &settings{config: c, local: slices.SortedFunc(slices.Values(addrs), netip.Addr.Compare), nodeAddrs: addrs}
	l := newLayout(s, t)
	var b strings.Builder
	for _, o := range sorted(l.wanted) {
		v, ok := l.value(o)
		if !ok {
			continue
		}
		b.WriteString(o.String())
		switch {
		case o.kind.serves():
			fmt.Fprintf(&b, " scheduler %s", v.scheduler)
			if v.affinity > 0 {
				fmt.Fprintf(&b, " persistent %d", v.affinity)
			}
			for _, r := range v.servers {
				fmt.Fprintf(&b, " -> %v", r)
			}
		case v.source.IsValid():
			fmt.Fprintf(&b, " src %v", v.source)
		case v.mark != 0:
			fmt.Fprintf(&b, " fwmark %#x", v.mark)
		}
		b.WriteString("\n")
	}
	b.Write(restoreInput(listing{}, newRules(c, f, t.Node())))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}
