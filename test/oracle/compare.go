package oracle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/oracle/iptrace"
)

// Rules are the rules of one node, by family, as iptables-save prints them.
type Rules map[fwd.Family]string

// Mismatch is a packet of which two rulesets make different things.
type Mismatch struct {
	Probe Probe
	// Remembers is the endpoint that both sides remember the client to have reached before, and how long ago; "" for none.
	Remembers    string
	Theirs, Ours Outcomes
}

// Outcomes are the things that can become of a packet, with their probabilities.
type Outcomes map[iptrace.Outcome]float64

// String returns one line for each outcome, sorted.
func (o Outcomes) String() string {
	var lines []string
	for outcome, p := range o {
		lines = append(lines, fmt.Sprintf("%6.2f %% %v", 100*p, outcome))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// equal allows for the digits that iptables keeps of a probability.
func (o Outcomes) equal(other Outcomes) bool {
	const digits = 1e-6
	return maps.EqualFunc(o, other, func(a, b float64) bool { return math.Abs(a-b) < digits })
}

// String returns the mismatch for people.
func (m Mismatch) String() string {
	indent := func(o Outcomes) string { return "    " + strings.ReplaceAll(o.String(), "\n", "\n    ") }
	text := m.Probe.String()
	if m.Remembers != "" {
		text += ", a client of " + m.Remembers
	}
	return fmt.Sprintf("%s\n  kube-proxy:\n%s\n  Fairlead:\n%s", text, indent(m.Theirs), indent(m.Ours))
}

// sides are the two rulesets of one family.
type sides struct{ theirs, ours *iptrace.Ruleset }

// Compare sends all probes through both rulesets.
func Compare(c *Cluster, theirs, ours Rules) ([]Mismatch, error) {
	var all []Mismatch
	for _, family := range fwd.Families() {
		var both sides
		var err error
		if both.theirs, err = iptrace.Parse(family, theirs[family]); err != nil {
			return nil, fmt.Errorf("kube-proxy's rules, %v: %w", family, err)
		}
		if both.ours, err = iptrace.Parse(family, ours[family]); err != nil {
			return nil, fmt.Errorf("our rules, %v: %w", family, err)
		}
		probes := Probes(c, family)
		remembered := memories{}
		for _, p := range probes {
			m, differs, err := both.compare(p, "", [2]iptrace.Memory{}, remembered)
			if err != nil {
				return nil, err
			}
			if differs {
				all = append(all, m)
			}
		}
		again, err := both.compareAffinity(probes, remembered)
		if err != nil {
			return nil, err
		}
		all = append(all, again...)
	}
	return all, nil
}

// memories are the lists of xt_recent that hold a client after it reached an endpoint, on both sides: by Service port and
// client, then by endpoint.
type memories map[string]map[string]*[2][]string

func (m memories) of(p Probe) map[string]*[2][]string {
	key := p.Service + " " + p.Client + p.Packet.Src.String()
	if m[key] == nil {
		m[key] = map[string]*[2][]string{}
	}
	return m[key]
}

// compare sends one probe through both sides, and takes down what they then remember.
func (s sides) compare(p Probe, note string, memory [2]iptrace.Memory, remembered memories) (Mismatch, bool, error) {
	m := Mismatch{Probe: p, Remembers: note}
	for i, rules := range []*iptrace.Ruleset{s.theirs, s.ours} {
		results, err := rules.Trace(p.Host, p.Packet, memory[i])
		if err != nil {
			return m, false, fmt.Errorf("%s: %w", []string{"kube-proxy's rules", "our rules"}[i], err)
		}
		outcomes := Outcomes{}
		for _, r := range results {
			outcomes[r.Outcome] += r.Probability
			if remembered != nil && p.AffinitySeconds > 0 && len(r.Remembered) > 0 {
				at := remembered.of(p)
				endpoint := r.To.String()
				if at[endpoint] == nil {
					at[endpoint] = &[2][]string{}
				}
				at[endpoint][i] = r.Remembered
			}
		}
		if i == 0 {
			m.Theirs = outcomes
		} else {
			m.Ours = outcomes
		}
	}
	return m, !m.Theirs.equal(m.Ours), nil
}

// compareAffinity sends the probes of Services with affinity again, as a client that has reached an endpoint by any of the
// Service port's addresses: just before and just after its time is up.
func (s sides) compareAffinity(probes []Probe, remembered memories) ([]Mismatch, error) {
	var all []Mismatch
	for _, p := range probes {
		if p.AffinitySeconds == 0 {
			continue
		}
		for _, endpoint := range slices.Sorted(maps.Keys(remembered.of(p))) {
			lists := remembered.of(p)[endpoint]
			for _, age := range []uint32{p.AffinitySeconds - 1, p.AffinitySeconds + 1} {
				var memory [2]iptrace.Memory
				for i := range memory {
					memory[i] = iptrace.Memory{}
					for _, list := range lists[i] {
						memory[i][list] = age
					}
				}
				m, differs, err := s.compare(p, fmt.Sprintf("%s %d s ago", endpoint, age), memory, nil)
				if err != nil {
					return nil, err
				}
				if differs {
					all = append(all, m)
				}
			}
		}
	}
	return all, nil
}
