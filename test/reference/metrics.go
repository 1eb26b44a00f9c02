package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Metric is a row of docs/metrics.md.
type Metric struct {
	// Name without the suffixes of a histogram's parts; Type as in the text format of Prometheus.
	Name, Type string
	// Labels are sorted.
	Labels []string
}

// metricName is what all our metrics are called; those of the Go runtime and of the process are Prometheus' own.
const metricName = `(?:fairlead|kubeproxy)_[a-z0-9_]+`

// Documented returns the metrics of a document by name: rows of tables of the form | `name` | type | `label`, `label` | meaning |.
func Documented(document string) (map[string]Metric, error) {
	row := regexp.MustCompile("^\\| `(" + metricName + ")` \\| ([a-z]+) \\|([^|]*)\\| (.+) \\|$")
	label := regexp.MustCompile("`([a-z_]+)`")
	all := map[string]Metric{}
	for line := range strings.Lines(document) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		match := row.FindStringSubmatch(strings.TrimSpace(line))
		if match == nil {
			return nil, fmt.Errorf("read documented metrics: row %q: want | `name` | type | `labels` | meaning |", strings.TrimSpace(line))
		}
		m := Metric{Name: match[1], Type: match[2]}
		for _, l := range label.FindAllStringSubmatch(match[3], -1) {
			m.Labels = append(m.Labels, l[1])
		}
		slices.Sort(m.Labels)
		if _, twice := all[m.Name]; twice {
			return nil, fmt.Errorf("read documented metrics: %s is there twice", m.Name)
		}
		all[m.Name] = m
	}
	return all, nil
}

// Named returns the names of metrics that the source of a module has as string literals, sorted. Tests are left out.
func Named(module fs.FS) ([]string, error) {
	name := regexp.MustCompile("^" + metricName + "$")
	found := map[string]bool{}
	err := fs.WalkDir(module, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(module, file)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse %s: %w", file, err)
		}
		ast.Inspect(syntax, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if value, err := strconv.Unquote(literal.Value); err == nil && name.MatchString(value) {
					found[value] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find metrics in the source: %w", err)
	}
	return sorted(found), nil
}

// Served returns the metrics in an answer of /metrics by name. Metrics without a value yet have no labels in it.
func Served(answer string) map[string]Metric {
	kind := regexp.MustCompile(`(?m)^# TYPE (` + metricName + `) ([a-z]+)$`)
	all := map[string]Metric{}
	for _, match := range kind.FindAllStringSubmatch(answer, -1) {
		m := Metric{Name: match[1], Type: match[2]}
		labels := map[string]bool{}
		series := regexp.MustCompile(`(?m)^` + m.Name + `(?:_bucket|_sum|_count)?\{([^}]*)\}`)
		for _, s := range series.FindAllStringSubmatch(answer, -1) {
			for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(s[1], -1) {
				labels[l[1]] = true
			}
		}
		delete(labels, "le")
		m.Labels = sorted(labels)
		all[m.Name] = m
	}
	return all
}

// Queried returns the metrics that a query names, sorted, a histogram's parts by the histogram's own name. A name that
// documented lacks stays as it is.
func Queried(query string, documented map[string]Metric) []string {
	found := map[string]bool{}
	for _, name := range regexp.MustCompile(`\b`+metricName+`\b`).FindAllString(query, -1) {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if whole, ok := strings.CutSuffix(name, suffix); ok && documented[whole].Type == "histogram" {
				name = whole
			}
		}
		found[name] = true
	}
	return sorted(found)
}

func sorted(set map[string]bool) []string {
	list := make([]string, 0, len(set))
	for name := range set {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
