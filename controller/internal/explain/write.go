package explain

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

// Write prints an Answer for people.
func (a Answer) Write(w io.Writer) error {
	var b bytes.Buffer
	if a.Node == "" {
		fmt.Fprintf(&b, "%s on a node in no zone\n", a.Service)
	} else {
		fmt.Fprintf(&b, "%s on node %s, zone %q\n", a.Service, a.Node, a.Zone)
	}
	if len(a.Ports) == 0 {
		b.WriteString("\nno port of it is in the node's table: it has no cluster IP, belongs to another proxy, or is too new\n")
	}
	for _, p := range a.Ports {
		fmt.Fprintf(&b, "\n%s\n  cluster list  %s\n  local list    %s\n\n", p.Port, p.Cluster, p.Local)
		if len(p.Endpoints) == 0 {
			b.WriteString("  no Pod or EndpointSlice gives it an endpoint\n")
			continue
		}
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  ENDPOINT\tNODE\tZONE\tSTATE\tHINTS\tCLUSTER LIST\tLOCAL LIST")
		for _, e := range p.Endpoints {
			fmt.Fprintf(t, "  %v\t%s\t%s\t%s\t%s\t%v\t%v\n", e.Address, cmp.Or(e.Node, "-"), cmp.Or(e.Zone, "-"), e.State, cmp.Or(e.Hints, "-"), e.Cluster, e.Local)
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
	for _, p := range a.Problems {
		fmt.Fprintf(&b, "\nproblem: %s\n", p)
	}
	if _, err := b.WriteTo(w); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}

// String is "in" or "out" and why.
func (m Membership) String() string {
	if m.In {
		return "in: " + m.Why
	}
	return "out: " + m.Why
}
