package script

import (
	"maps"
	"slices"
)

// Variant is another way to say what a script says: its Script ends in the same tables.
type Variant struct {
	Name   string
	Script *Script
}

// Variants returns all of them, the script as written first.
func (s *Script) Variants() []Variant {
	return []Variant{
		{"as written", s},
		{"everything twice", s.twice()},
		{"one object at a time", s.split()},
		{"final state, as written", s.final(false)},
		{"final state, reversed", s.final(true)},
	}
}

// twice repeats each step that is no table.
func (s *Script) twice() *Script {
	v := &Script{Comment: s.Comment}
	for _, step := range s.Steps {
		v.Steps = append(v.Steps, step)
		if step.Verb != Table {
			v.Steps = append(v.Steps, step)
		}
	}
	return v
}

// split makes a step of each object, so that every state between two steps of the script is passed through as well.
func (s *Script) split() *Script {
	v := &Script{Comment: s.Comment}
	for _, step := range s.Steps {
		if step.Verb != Apply {
			v.Steps = append(v.Steps, step)
			continue
		}
		for _, o := range step.Objects {
			v.Steps = append(v.Steps, Step{Verb: Apply, Line: step.Line, Objects: []Object{o}})
		}
	}
	return v
}

// final applies only what the script leaves behind, one object at a time, and checks the last table of each node.
func (s *Script) final(reversed bool) *Script {
	last, terminated, tables := map[Ref]Object{}, map[Ref]bool{}, map[string]Step{}
	for _, step := range s.Steps {
		for _, o := range step.Objects {
			last[o.Ref] = o
		}
		for _, r := range step.Refs {
			terminated[r] = step.Verb == Terminate
			if step.Verb == Delete {
				delete(last, r)
			}
		}
		if step.Verb == Table {
			tables[step.Node] = step
		}
	}
	v := &Script{Comment: s.Comment}
	for _, ref := range s.Refs() {
		if o, ok := last[ref]; ok {
			v.Steps = append(v.Steps, Step{Verb: Apply, Objects: []Object{o}})
		}
	}
	if reversed {
		slices.Reverse(v.Steps)
	}
	for _, ref := range s.Refs() {
		if _, ok := last[ref]; ok && terminated[ref] {
			v.Steps = append(v.Steps, Step{Verb: Terminate, Refs: []Ref{ref}})
		}
	}
	for _, node := range slices.Sorted(maps.Keys(tables)) {
		v.Steps = append(v.Steps, tables[node])
	}
	return v
}
