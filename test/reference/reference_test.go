package reference

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/test/cluster/binaries"
)

var update = flag.Bool("update", false, "write the generated documents")

// file returns the path of a file of the repository, and its text; none is empty.
func file(t *testing.T, name string) (path, text string) {
	t.Helper()
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(root, filepath.FromSlash(name))
	content, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return path, string(content)
}

// current compares a document with what it should be, or writes it.
func current(t *testing.T, name, want string) {
	t.Helper()
	path, have := file(t, name)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(have, want); diff != "" {
		t.Errorf("%s is out of date: make docs\n%s", name, diff)
	}
}

func TestConfigurationIsCurrent(t *testing.T) {
	text := Configuration()
	for _, flag := range []string{"--config path", "--endpoints source", "--mode mode", "--node-name name` |  |"} {
		if !strings.Contains(text, flag) {
			t.Errorf("no flag %s", flag)
		}
	}
	current(t, "docs/configuration.md", text)
}

func TestChartValuesAreCurrent(t *testing.T) {
	_, values := file(t, "charts/fairlead/values.yaml")
	table, err := Values([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	const name = "charts/fairlead/README.md"
	_, readme := file(t, name)
	want, err := Between(readme, "values", table)
	if err != nil {
		t.Fatal(err)
	}
	current(t, name, want)
}

func TestValues(t *testing.T) {
	got, err := Values([]byte("# All of it.\n\na:\n  # One\n  # of two.\n  b: [x]\n  c:\n    # A map | whole.\n    d: {z: 1, y: \"\"}\n"))
	want := "| value | default | meaning |\n| --- | --- | --- |\n| `a.b` | `[\"x\"]` | One of two. |\n| `a.c.d` | `{\"y\":\"\",\"z\":1}` | A map \\| whole. |\n"
	if err != nil || got != want {
		t.Errorf("values:\n%s%v, want\n%s", got, err, want)
	}
	for _, text := range []string{"a: 1\n", "a: {b: {}}\n", "[1]\n", "\t", ""} {
		if got, err := Values([]byte(text)); err == nil {
			t.Errorf("%q gives %q", text, got)
		}
	}
}

func TestBetween(t *testing.T) {
	got, err := Between("a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n", "x", "new\n")
	if want := "a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nb\n"; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := Between("a\n<!-- x: begin -->\n", "x", ""); err == nil {
		t.Error("an end that lacks is no error")
	}
}
