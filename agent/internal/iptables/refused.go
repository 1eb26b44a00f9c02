package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// A kernel may refuse a rule though the probe found all that rules are made of. A restore with such a rule fails as a
// whole, so the Service that it belongs to is searched for and left out: all others are programmed.

// service names a Service.
type service struct{ namespace, name string }

func (s service) compare(o service) int {
	return strings.Compare(s.namespace+"/"+s.name, o.namespace+"/"+o.name)
}

func serviceOf(p *fwd.Port) service { return service{p.Namespace, p.Name} }

// refused are the Services of one family that are left out, and what was said to their rules. It is never changed, but
// replaced.
type refused map[service]string

func (r refused) has(s service) bool {
	_, no := r[s]
	return no
}

const (
	// maxRefused is how many Services are left out at most: a kernel that refuses more is not refusing Services.
	maxRefused = 64
	// maxAsked is how many Services the kernel is asked for at once.
	maxAsked = 500
	// maxSaid is how much is kept of what iptables said, in bytes: it goes into an Event.
	maxSaid = 300
)

// errTooManyRefused ends a search.
var errTooManyRefused = fmt.Errorf("the kernel refuses more than %d Services", maxRefused)

// blames reports whether an error may be about rules: then the kernel, or iptables, has looked at them and said no.
func blames(err error) bool {
	failed := (*commandError)(nil)
	return errors.As(err, &failed) && !failed.locked()
}

// leaveOut searches for the Services whose rules made a Sync fail, among those that it looked at. It reports whether it found
// any, which the next plan leaves out.
func (f *family) leaveOut(ctx context.Context, b *Backend, now *fwd.Table, delta dataplane.Delta) bool {
	basics := slices.DeleteFunc(needs(f.commands.family), func(n need) bool { return n.without != nil })
	if ctx.Err() != nil || f.try(ctx, b.runner, basics...) != nil {
		return false
	}
	s := search{commands: f.commands, runner: b.runner, rules: f.rulesByService(b.config, now, lookedAt(now, delta)), found: refused{}}
	maps.Copy(s.found, f.refused)
	logger := b.config.Logger.With(slog.String("family", f.commands.family.String()))
	for some := range slices.Chunk(slices.SortedFunc(maps.Keys(s.rules), service.compare), maxAsked) {
		if err := s.ask(ctx, some); err != nil {
			logger.WarnContext(ctx, "search for what the kernel refuses", slog.Any("error", err))
			return false
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.found), service.compare) {
		if !f.refused.has(name) {
			logger.ErrorContext(ctx, "kernel refuses the rules of a Service, which is left out",
				slog.String("service", name.namespace+"/"+name.name), slog.String("error", s.found[name]))
		}
	}
	more := len(s.found) > len(f.refused)
	f.refused = s.found
	return more
}

// search finds Services that the kernel refuses.
type search struct {
	commands commands
	runner   runner
	rules    map[service][]need
	found    refused
}

// ask gives the kernel all rules of some Services, and where it refuses those of each half of them.
func (s *search) ask(ctx context.Context, some []service) error {
	var rules []need
	for _, name := range some {
		rules = append(rules, s.rules[name]...)
	}
	err := s.commands.try(ctx, s.runner, rules...)
	failed := (*commandError)(nil)
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &failed) || ctx.Err() != nil:
		return err
	case len(some) > 1:
		half := len(some) / 2
		if err := s.ask(ctx, some[:half]); err != nil {
			return err
		}
		return s.ask(ctx, some[half:])
	case len(s.found) >= maxRefused:
		return errTooManyRefused
	}
	s.found[some[0]] = failed.said[:min(len(failed.said), maxSaid)]
	return nil
}

// reconsider asks the kernel again for refused Services that a Sync looks at anyway. Where one is taken now, all is planned
// anew. One that is gone is forgotten when everything is looked at.
func (f *family) reconsider(ctx context.Context, b *Backend, now *fwd.Table, delta dataplane.Delta) {
	if len(f.refused) == 0 {
		return
	}
	looked := lookedAt(now, delta)
	all := f.rulesByService(b.config, now, func(s service) bool { return f.refused.has(s) && looked(s) })
	left := refused{}
	for s, said := range f.refused {
		rules, asked := all[s]
		if asked && f.try(ctx, b.runner, rules...) != nil || !asked && !delta.All {
			left[s] = said
		}
	}
	if len(left) < len(f.refused) {
		f.layout, f.refused = nil, left
	}
}

// lookedAt says which Services a Delta names.
func lookedAt(now *fwd.Table, delta dataplane.Delta) func(service) bool {
	if delta.All {
		return func(service) bool { return true }
	}
	named := map[service]bool{}
	for _, id := range delta.Ports {
		if p, ok := now.Port(id); ok {
			named[serviceOf(p)] = true
		}
	}
	return func(s service) bool { return named[s] }
}

// rulesByService are all rules of some Services, to be tried in a chain that nothing leads to.
func (f *family) rulesByService(c Config, now *fwd.Table, wanted func(service) bool) map[service][]need {
	s := f.settings(c, now.Node())
	s.refused = nil
	trees := newTrees(s.family)
	all := map[service][]need{}
	for _, p := range now.Ports() {
		name := serviceOf(p)
		if p.Family != s.family || !wanted(name) {
			continue
		}
		program := s.plan(p)
		for _, chain := range program.chains {
			for _, r := range chain.Rules {
				all[name] = append(all[name], tryable(chain.Table, r))
			}
		}
		for _, e := range program.entries {
			all[name] = append(all[name], tryable(trees[e.tree].table, e.rule))
		}
	}
	return all
}

// tryable is a rule as it can stand in a chain by itself: what it leads to may not be there.
func tryable(table string, r Rule) need {
	if r.Chain != "" {
		r.Verdict, r.Chain = Return, ""
	}
	return need{key: chainKey{table, probeChain}, rule: r}
}

// reasonRefused is that of a notice on a Service that is left out.
const reasonRefused = "ServiceRefusedByKernel"

// notices of one Service port whose Service is left out.
func (r refused) notices(p *fwd.Port) []dataplane.Notice {
	said, ok := r[serviceOf(p)]
	if !ok {
		return nil
	}
	return []dataplane.Notice{{
		Namespace: p.Namespace, Name: p.Name, Reason: reasonRefused,
		Message: fmt.Sprintf("port %d/%v is not forwarded for %v: the node's kernel refuses a rule of the Service: %s", p.ServicePort.Port, p.Protocol, p.Family, said),
	}}
}
