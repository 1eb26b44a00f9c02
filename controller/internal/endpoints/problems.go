package endpoints

import (
	"fmt"
	"slices"
	"strings"
)

// examples is how many cases a Problem spells out; the rest is a number, so that a slice with a thousand bad endpoints
// makes one readable Event.
const examples = 3

// Findings gathers what is wrong with a Service, by reason and by what became of it.
type Findings map[Finding][]string

// Finding is a Reason and the sentence that its examples complete.
type Finding struct{ Reason, Text string }

// Add notes one case of a finding.
func (f Findings) Add(kind Finding, format string, args ...any) {
	f[kind] = append(f[kind], fmt.Sprintf(format, args...))
}

// Problems returns one Problem for each finding, sorted; the cases in it are sorted and without duplicates.
func (f Findings) Problems() []Problem {
	if len(f) == 0 {
		return nil
	}
	problems := make([]Problem, 0, len(f))
	for kind, cases := range f {
		cases = slices.Compact(slices.Sorted(slices.Values(cases)))
		text := kind.Text + ": " + strings.Join(cases[:min(len(cases), examples)], "; ")
		if more := len(cases) - examples; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		problems = append(problems, Problem{Reason: kind.Reason, Message: text})
	}
	slices.SortFunc(problems, func(a, b Problem) int {
		return strings.Compare(a.Reason+" "+a.Message, b.Reason+" "+b.Message)
	})
	return problems
}
