package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// parseCase reads "CLIENT[@ADDRESS] PROTOCOL DESTINATION -> OUTCOME [| MODE OUTCOME]…".
func parseCase(text string, f fwd.Family) (Case, error) {
	from, outcomes, ok := strings.Cut(text, "->")
	words := strings.Fields(from)
	if !ok || len(words) != 3 {
		return Case{}, fmt.Errorf("case: want CLIENT PROTOCOL DESTINATION -> OUTCOME")
	}
	c := Case{Modes: map[string]Outcome{}}
	var err error
	if c.Client, err = parseClient(words[0], f); err != nil {
		return Case{}, err
	}
	if c.Protocol, err = fwd.ParseProtocol(strings.ToUpper(words[1])); err != nil {
		return Case{}, fmt.Errorf("case: %w", err)
	}
	if c.To, err = netip.ParseAddrPort(words[2]); err != nil {
		return Case{}, fmt.Errorf("case: destination: %w", err)
	}
	for i, part := range strings.Split(outcomes, "|") {
		words := strings.Fields(part)
		if i == 0 {
			c.Want, err = parseOutcome(words)
		} else if len(words) > 1 {
			c.Modes[words[0]], err = parseOutcome(words[1:])
		} else {
			err = fmt.Errorf("case: want MODE OUTCOME after |")
		}
		if err != nil {
			return Case{}, err
		}
	}
	return c, nil
}

func parseClient(word string, f fwd.Family) (Client, error) {
	kind, addr, given := strings.Cut(word, "@")
	c := Client{Kind: Kind(kind)}
	var known bool
	if c.Addr, known = Plan(f).Clients[c.Kind]; !known {
		return c, fmt.Errorf("client %q: want pod, remote, node or external", kind)
	}
	if given {
		a, err := netip.ParseAddr(addr)
		if err != nil {
			return c, fmt.Errorf("client: %w", err)
		}
		c.Addr = a
	}
	return c, nil
}

func parseOutcome(words []string) (Outcome, error) {
	o := Outcome{Verdict: Forwarded}
	for _, w := range words {
		switch w {
		case string(Passed), string(Rejected), string(Dropped):
			o.Verdict = Verdict(w)
		case "masquerade":
			o.Masquerade = true
		default:
			e, err := netip.ParseAddrPort(w)
			if err != nil {
				return o, fmt.Errorf("outcome %q: want none, reject, drop, or endpoints and perhaps masquerade", w)
			}
			o.Endpoints = append(o.Endpoints, e)
		}
	}
	slices.SortFunc(o.Endpoints, netip.AddrPort.Compare)
	if (o.Verdict == Forwarded) != (len(o.Endpoints) > 0) {
		return o, fmt.Errorf("outcome %q: want either endpoints or a verdict", strings.Join(words, " "))
	}
	return o, nil
}
