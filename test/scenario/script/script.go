package script

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Verb says what a step does.
type Verb string

// The verbs.
const (
	Apply     Verb = "apply"
	Delete    Verb = "delete"
	Terminate Verb = "terminate"
	Table     Verb = "table"
)

// Script is a scenario: Comment says what it shows.
type Script struct {
	Comment string
	Steps   []Step
}

// Step is one section. Which fields are set depends on the verb.
type Step struct {
	Verb Verb
	// Line is the section's first line in the file, from 1.
	Line int
	// Objects of Apply, in the order of the file.
	Objects []Object
	// Refs of Delete and Terminate.
	Refs []Ref
	// Node and Text of Table; Text ends with a newline unless empty.
	Node, Text string
}

// Ref names an object of the scenario.
type Ref struct{ Kind, Name string }

// String returns "Kind/name".
func (r Ref) String() string { return r.Kind + "/" + r.Name }

// Object is a manifest with its Ref. It is not to be changed.
type Object struct {
	Ref
	Fields map[string]any
}

// Parse reads a file. Errors name the line.
func Parse(text string) (*Script, error) {
	s := &Script{}
	var body []string
	var comment []string
	flush := func() error {
		if len(s.Steps) == 0 {
			comment = body
			body = nil
			return nil
		}
		step := &s.Steps[len(s.Steps)-1]
		err := step.fill(strings.Join(body, "\n"))
		body = nil
		if err != nil {
			return fmt.Errorf("line %d: %s: %w", step.Line, step.Verb, err)
		}
		return nil
	}
	for n, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		header, isHeader := header(line)
		if !isHeader {
			body = append(body, line)
			continue
		}
		if err := flush(); err != nil {
			return nil, err
		}
		step := Step{Verb: Verb(header[0]), Line: n + 1}
		if len(header) == 2 {
			step.Node = header[1]
		}
		if err := step.check(len(header)); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		s.Steps = append(s.Steps, step)
	}
	if err := flush(); err != nil {
		return nil, err
	}
	s.Comment = strings.TrimSpace(strings.Join(comment, "\n"))
	if s.Comment == "" || len(s.Steps) == 0 {
		return nil, errors.New("scenario: want a comment that says what it shows, and steps")
	}
	return s, nil
}

func header(line string) ([]string, bool) {
	inner, ok := strings.CutPrefix(line, "-- ")
	if !ok {
		return nil, false
	}
	inner, ok = strings.CutSuffix(inner, " --")
	return strings.Fields(inner), ok
}

func (s *Step) check(words int) error {
	want := 1
	switch s.Verb {
	case Apply, Delete, Terminate:
	case Table:
		want = 2
	default:
		return fmt.Errorf("verb %q: want apply, delete, terminate or table", s.Verb)
	}
	if words != want {
		return fmt.Errorf("%s: want %d words between the dashes", s.Verb, want)
	}
	return nil
}

func (s *Step) fill(body string) error {
	switch s.Verb {
	case Table:
		if text := strings.TrimSpace(body); text != "" {
			s.Text = text + "\n"
		}
	case Apply:
		for doc := range strings.SplitSeq("\n"+body, "\n---") {
			if strings.TrimSpace(doc) == "" {
				continue
			}
			o, err := parseObject(doc)
			if err != nil {
				return err
			}
			s.Objects = append(s.Objects, o)
		}
	case Delete, Terminate:
		for line := range strings.SplitSeq(body, "\n") {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			kind, name, ok := strings.Cut(line, "/")
			if !ok {
				return fmt.Errorf("%q: want Kind/name", line)
			}
			s.Refs = append(s.Refs, Ref{kind, name})
		}
	}
	return nil
}

func parseObject(doc string) (Object, error) {
	fields := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(doc), &fields); err != nil {
		return Object{}, fmt.Errorf("manifest: %w", err)
	}
	kind, _ := fields["kind"].(string)
	metadata, _ := fields["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if kind == "" || name == "" {
		return Object{}, errors.New("manifest: kind and metadata.name must not be empty")
	}
	return Object{Ref{kind, name}, fields}, nil
}

// Refs returns all objects that the script ever applies, in the order of their first appearance.
func (s *Script) Refs() []Ref {
	var refs []Ref
	for _, step := range s.Steps {
		for _, o := range step.Objects {
			if !slices.Contains(refs, o.Ref) {
				refs = append(refs, o.Ref)
			}
		}
	}
	return refs
}
