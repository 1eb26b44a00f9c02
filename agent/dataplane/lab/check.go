package lab

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Check sends the packets of one case of a trace and says how what became of them differs from what the mode's case wants.
func (l *Lab) Check(mode string, file trace.File, c trace.Case) error {
	want := c.For(mode)
	if sticky(file.Table, c, want) {
		if err := l.stays(c, want); err != nil {
			return fmt.Errorf("%s.trace:%d: %w", file.Name, c.Line, err)
		}
		return nil
	}
	got, err := l.Observe(c, want)
	switch {
	case err != nil:
		return fmt.Errorf("%s.trace:%d: %w", file.Name, c.Line, err)
	case !got.Equal(want):
		return fmt.Errorf("%s.trace:%d: %v %v to %v: got %v, want %v", file.Name, c.Line, c.Client, c.Protocol, c.To, got, want)
	}
	return nil
}

// sticky reports whether the endpoints of a case belong to a Service port with affinity.
func sticky(table *fwd.Table, c trace.Case, o trace.Outcome) bool {
	inUse := func(b fwd.Backend) bool { return slices.Contains(o.Endpoints, b.Addr) }
	for _, p := range table.Ports() {
		if p.AffinitySeconds > 0 && p.Protocol == c.Protocol && slices.ContainsFunc(p.Cluster(), inUse) {
			return true
		}
	}
	return false
}

// stays asks often, and wants one endpoint only, among those expected.
func (l *Lab) stays(c trace.Case, want trace.Outcome) error {
	const times = 12
	var first Answer
	for i := range times {
		a, err := l.Ask(c.Client, c.Protocol, c.To)
		switch {
		case err != nil:
			return err
		case i == 0:
			first = a
		case a != first:
			return fmt.Errorf("client moved from %v to %v", first, a)
		}
		if !slices.Contains(want.Endpoints, a.Endpoint) || want.Masquerade == (a.Client == c.Client.Addr) {
			return fmt.Errorf("got %v, want one of %v", a, want)
		}
	}
	return nil
}
