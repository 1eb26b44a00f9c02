package oracle

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/oracle/iptrace"
	"github.com/fairlead/fairlead/test/oracle/journey"
	"github.com/fairlead/fairlead/test/oracle/nftrace"
)

// Rules are the rules of one node, by family, as iptables-save prints them.
type Rules map[fwd.Family]string

// tracer follows packets through the rules of one side.
type tracer interface {
	Trace(h journey.Host, p journey.Packet, m journey.Memory) ([]journey.Result, error)
}

// Mismatch is a packet of which two rulesets make different things.
type Mismatch struct {
	// Mode is ours.
	Mode  Mode
	Probe Probe
	// Remembers is the endpoint that both sides remember the client to have reached before, and how long ago; "" for none.
	Remembers string
	// Theirs is what has become of it in kube-proxy's rules, but for what is meant to differ.
	Theirs, Ours Outcomes
}

// Outcomes are the things that can become of a packet, with their probabilities.
type Outcomes map[journey.Outcome]float64

// String returns one line for each outcome, sorted.
func (o Outcomes) String() string {
	var lines []string
	for outcome, p := range o {
		lines = append(lines, fmt.Sprintf("%6.2f %% %v", 100*p, outcome))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// equal allows for the digits that iptables keeps of a probability, and for nftables mode's way of drawing, which favours
// some endpoints by less than a hundredth of their share.
func (o Outcomes) equal(other Outcomes) bool {
	const digits, share = 1e-6, 0.01
	return maps.EqualFunc(o, other, func(a, b float64) bool { return math.Abs(a-b) < max(digits, share*min(a, b)) })
}

// String returns the mismatch for people.
func (m Mismatch) String() string {
	indent := func(o Outcomes) string { return "    " + strings.ReplaceAll(o.String(), "\n", "\n    ") }
	text := fmt.Sprintf("%s mode, %v", m.Mode, m.Probe)
	if m.Remembers != "" {
		text += ", a client of " + m.Remembers
	}
	return fmt.Sprintf("%s\n  kube-proxy:\n%s\n  Fairlead:\n%s", text, indent(m.Theirs), indent(m.Ours))
}

// side is one ruleset of one family.
type side struct {
	name string
	// mode is "" for kube-proxy.
	mode Mode
	tracer
}

// sides are kube-proxy's rules, and then ours in each mode.
type sides []side

func parse(f fwd.Family, theirs Rules, ours map[Mode]Rules) (sides, error) {
	rules, err := iptrace.Parse(f, theirs[f])
	if err != nil {
		return nil, fmt.Errorf("kube-proxy's rules, %v: %w", f, err)
	}
	all := sides{{"kube-proxy's rules", "", rules}}
	for _, mode := range slices.Sorted(maps.Keys(ours)) {
		var t tracer
		switch mode {
		case IPTables:
			t, err = iptrace.Parse(f, ours[mode][f])
		case NFTables:
			t, err = nftrace.Parse(f, ours[mode][f])
		}
		if err != nil {
			return nil, fmt.Errorf("our rules, %s mode, %v: %w", mode, f, err)
		}
		all = append(all, side{fmt.Sprintf("our rules, %s mode", mode), mode, t})
	}
	return all, nil
}

// Compare sends all probes through kube-proxy's rules and through ours in each mode.
func Compare(c *Cluster, theirs Rules, ours map[Mode]Rules, differences []Difference) ([]Mismatch, error) {
	var all []Mismatch
	facts := newFacts(c)
	for _, family := range fwd.Families() {
		s, err := parse(family, theirs, ours)
		if err != nil {
			return nil, err
		}
		probes := Probes(c, family)
		w := comparison{s, facts, differences}
		remembered := memories{sides: len(s), by: map[string]map[string][][]string{}}
		for _, p := range probes {
			differ, err := w.compare(p, "", make([]journey.Memory, len(s)), &remembered)
			if err != nil {
				return nil, err
			}
			all = append(all, differ...)
		}
		again, err := w.compareAffinity(probes, remembered)
		if err != nil {
			return nil, err
		}
		all = append(all, again...)
	}
	return all, nil
}

// memories are what holds a client after it reached an endpoint, on all sides: by Service port and client, then by endpoint.
type memories struct {
	sides int
	by    map[string]map[string][][]string
}

func (m memories) of(p Probe) map[string][][]string {
	key := p.Service + " " + p.Client + p.Packet.Src.String()
	if m.by[key] == nil {
		m.by[key] = map[string][][]string{}
	}
	return m.by[key]
}

func (m memories) note(p Probe, side int, r journey.Result) {
	if p.AffinitySeconds == 0 || len(r.Remembered) == 0 {
		return
	}
	at, endpoint := m.of(p), r.To.String()
	if at[endpoint] == nil {
		at[endpoint] = make([][]string, m.sides)
	}
	at[endpoint][side] = r.Remembered
}

// comparison is the sides of one family, and what is meant to differ.
type comparison struct {
	sides
	facts       facts
	differences []Difference
}

// compare sends one probe through all sides, and takes down what they then remember.
func (w comparison) compare(p Probe, note string, memory []journey.Memory, remembered *memories) ([]Mismatch, error) {
	var differ []Mismatch
	var theirs Outcomes
	for i, side := range w.sides {
		results, err := side.Trace(p.Host, p.Packet, memory[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.name, err)
		}
		outcomes := Outcomes{}
		for _, r := range results {
			outcomes[r.Outcome] += r.Probability
			if remembered != nil {
				remembered.note(p, i, r)
			}
		}
		if i == 0 {
			theirs = outcomes
			continue
		}
		w.facts.mode = side.mode
		if expected := w.facts.expected(w.differences, p, theirs); !expected.equal(outcomes) {
			differ = append(differ, Mismatch{side.mode, p, note, expected, outcomes})
		}
	}
	return differ, nil
}

// compareAffinity sends the probes of Services with affinity again, as a client that has reached an endpoint by any of the
// Service port's addresses: just before and just after its time is up.
func (w comparison) compareAffinity(probes []Probe, remembered memories) ([]Mismatch, error) {
	var all []Mismatch
	for _, p := range probes {
		if p.AffinitySeconds == 0 {
			continue
		}
		for _, endpoint := range slices.Sorted(maps.Keys(remembered.of(p))) {
			names := remembered.of(p)[endpoint]
			for _, age := range []uint32{p.AffinitySeconds - 1, p.AffinitySeconds + 1} {
				memory := make([]journey.Memory, len(w.sides))
				for i := range memory {
					memory[i] = journey.Memory{}
					for _, name := range names[i] {
						memory[i][name] = age
					}
				}
				differ, err := w.compare(p, fmt.Sprintf("%s %d s ago", endpoint, age), memory, nil)
				if err != nil {
					return nil, err
				}
				all = append(all, differ...)
			}
		}
	}
	return all, nil
}
