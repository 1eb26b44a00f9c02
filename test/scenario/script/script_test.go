package script_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/scenario/script"
)

const text = `What it shows.

-- apply --
{kind: Service, metadata: {name: web}}
---
{kind: Pod, metadata: {name: a}}
-- table n1 --
service s/web:/TCP/IPv4
  common 10.0.0.1:80

-- apply --
{kind: Pod, metadata: {name: b}}
---
{kind: Pod, metadata: {name: a}, spec: {x: 1}}
-- terminate --
Pod/a
-- delete --
Pod/b
-- table n1 --
-- table n2 --
`

func TestVariants(t *testing.T) {
	s, err := script.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if s.Comment != "What it shows." {
		t.Errorf("comment %q", s.Comment)
	}
	want := map[string]string{
		"as written":              "apply Service/web Pod/a; table n1 2; apply Pod/b Pod/a; terminate Pod/a; delete Pod/b; table n1 0; table n2 0",
		"everything twice":        "apply Service/web Pod/a; apply Service/web Pod/a; table n1 2; apply Pod/b Pod/a; apply Pod/b Pod/a; terminate Pod/a; terminate Pod/a; delete Pod/b; delete Pod/b; table n1 0; table n2 0",
		"one object at a time":    "apply Service/web; apply Pod/a; table n1 2; apply Pod/b; apply Pod/a; terminate Pod/a; delete Pod/b; table n1 0; table n2 0",
		"final state, as written": "apply Service/web; apply Pod/a; terminate Pod/a; table n1 0; table n2 0",
		"final state, reversed":   "apply Pod/a; apply Service/web; terminate Pod/a; table n1 0; table n2 0",
	}
	for _, v := range s.Variants() {
		if got := describe(v.Script); got != want[v.Name] {
			t.Errorf("%s:\ngot  %s\nwant %s", v.Name, got, want[v.Name])
		}
		delete(want, v.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing variants: %v", want)
	}
}

func describe(s *script.Script) string {
	var steps []string
	for _, step := range s.Steps {
		words := []string{string(step.Verb)}
		for _, o := range step.Objects {
			words = append(words, o.String())
		}
		for _, r := range step.Refs {
			words = append(words, r.String())
		}
		if step.Verb == script.Table {
			words = append(words, step.Node, fmt.Sprint(strings.Count(step.Text, "\n")))
		}
		steps = append(steps, strings.Join(words, " "))
	}
	return strings.Join(steps, "; ")
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "want a comment",
		"x":                                    "and steps",
		"x\n-- run --":                         `line 2: verb "run"`,
		"x\n-- table --":                       "line 2: table: want 2 words",
		"x\n-- delete --\nPod a":               `line 2: delete: "Pod a": want Kind/name`,
		"x\n-- apply --\n{kind: Pod}":          "line 2: apply: manifest: kind and metadata.name",
		"x\n-- apply --\n{kind: Pod, kind: a}": "line 2: apply: manifest:",
	} {
		if _, err := script.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}
