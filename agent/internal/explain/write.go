package explain

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"
)

// Write prints an Answer for people.
func (a Answer) Write(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%v, %s, to %v/%s: %s in %s mode\n", a.From, a.Client, a.To, a.Protocol, a.Verdict, a.Mode)
	if a.Service != "" {
		fmt.Fprintf(&b, "\nservice   %s, by its %s\n", a.Service, a.Address)
	}
	if a.Verdict == Forwarded {
		fmt.Fprintf(&b, "list      %s\n", a.List)
		switch {
		case a.Masquerade:
			b.WriteString("client    is hidden: endpoints see an address of this node\n")
		case a.Hairpin:
			b.WriteString("client    is seen by endpoints, but hidden where it reaches itself\n")
		default:
			b.WriteString("client    is seen by endpoints\n")
		}
		if a.AffinitySeconds > 0 {
			fmt.Fprintf(&b, "affinity  %d seconds\n", a.AffinitySeconds)
		}
	}
	b.WriteString("\nwhy\n")
	for _, reason := range a.Why {
		fmt.Fprintf(&b, "  %s\n", reason)
	}
	if len(a.Endpoints) > 0 {
		b.WriteString("\nendpoints that this node knows\n")
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, e := range a.Endpoints {
			fmt.Fprintf(t, "  %s\t%v\t%s\n", map[bool]string{true: "used", false: "-"}[e.Used], e.Address, e.Why)
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
	if len(a.Rules) > 0 {
		b.WriteString("\nrules\n")
		for _, rule := range a.Rules {
			fmt.Fprintf(&b, "  %s\n", rule)
		}
	}
	if _, err := b.WriteTo(w); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}
