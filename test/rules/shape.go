package rules

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// MaxLines is the number of lines at which a file that people write has to be split.
const MaxLines = 400

// FileLength reports hand-written files that are too long; tests, which list cases, and generated files may be longer.
func FileLength(sources []Source) []Finding {
	var findings []Finding
	for _, source := range sources {
		if source.Lines > MaxLines && !source.IsTest() && !source.IsGenerated() {
			findings = append(findings, Finding{Path: source.Path, Text: fmt.Sprintf("%d lines, at most %d: split it", source.Lines, MaxLines)})
		}
	}
	return findings
}

// PackageNames reports packages named after nothing in particular: a name is a stage or a noun.
func PackageNames(sources []Source) []Finding {
	vague := []string{"util", "utils", "common", "helper", "helpers", "types", "manager", "misc", "base", "pkg", "lib", "shared"}
	var findings []Finding
	seen := map[string]bool{}
	for _, source := range sources {
		dir := source.Dir()
		if seen[dir] {
			continue
		}
		seen[dir] = true
		for _, name := range append(strings.Split(dir, "/"), source.Syntax.Name.Name) {
			if slices.Contains(vague, strings.TrimSuffix(name, "_test")) {
				findings = append(findings, Finding{Path: dir, Text: fmt.Sprintf("the name %q says nothing: name the stage or the noun", name)})
				break
			}
		}
	}
	return findings
}

// PackageComments reports packages without a package comment of 3 to 15 lines in exactly one file. Packages of generated
// code and of tests alone are exempt.
func PackageComments(sources []Source) []Finding {
	const shortest, longest = 3, 15
	comments := map[string][]int{}
	var dirs []string
	for _, source := range sources {
		dir := source.Dir()
		if source.IsTest() || source.IsGenerated() {
			continue
		}
		if _, seen := comments[dir]; !seen {
			dirs = append(dirs, dir)
			comments[dir] = nil
		}
		if doc := source.Syntax.Doc; doc != nil {
			comments[dir] = append(comments[dir], len(strings.Split(strings.TrimSpace(doc.Text()), "\n")))
		}
	}
	var findings []Finding
	for _, dir := range dirs {
		lines := comments[dir]
		switch {
		case len(lines) == 0:
			findings = append(findings, Finding{Path: dir, Text: "no package comment: say input, output and neighbour in 3 to 15 lines"})
		case len(lines) > 1:
			findings = append(findings, Finding{Path: dir, Text: "more than one file has a package comment: keep one"})
		case lines[0] < shortest || lines[0] > longest:
			findings = append(findings, Finding{Path: dir, Text: fmt.Sprintf("package comment of %d lines: say input, output and neighbour in 3 to 15", lines[0])})
		}
	}
	return findings
}

// LeftOvers reports what must not be committed: marks of unfinished work in comments, skipped tests and sleeps.
func LeftOvers(sources []Source) []Finding {
	unfinished := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	var findings []Finding
	for _, source := range sources {
		if source.IsGenerated() {
			continue
		}
		for _, group := range source.Syntax.Comments {
			for _, comment := range group.List {
				if mark := unfinished.FindString(comment.Text); mark != "" {
					findings = append(findings, source.at(comment.Pos(), mark+" in a comment: do it, or open an issue"))
				}
			}
		}
		findings = append(findings, forbiddenCalls(source)...)
	}
	return findings
}

// forbiddenCalls finds t.Skip and time.Sleep by their names: the linter, which knows types, has the last word.
func forbiddenCalls(source Source) []Finding {
	var findings []Finding
	ast.Inspect(source.Syntax, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		receiver, _ := selector.X.(*ast.Ident)
		switch name := selector.Sel.Name; {
		case receiver == nil:
		case source.IsTest() && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, name):
			findings = append(findings, source.at(node.Pos(), "skipped test: fail and say what to install"))
		case receiver.Name == "time" && name == "Sleep":
			findings = append(findings, source.at(node.Pos(), "sleep: wait on a channel, a condition or a ticker with a deadline"))
		}
		return true
	})
	return findings
}

// Pure reports goroutines in the packages that take values and return values; .golangci.yml keeps imports and clocks out.
func Pure(sources []Source) []Finding {
	var findings []Finding
	for _, source := range sources {
		if source.IsTest() || !isPure(source.Path) {
			continue
		}
		ast.Inspect(source.Syntax, func(node ast.Node) bool {
			if _, ok := node.(*ast.GoStmt); ok {
				findings = append(findings, source.at(node.Pos(), "goroutine in a pure package: values in, values out"))
			}
			return true
		})
	}
	return findings
}

func isPure(name string) bool {
	for _, dir := range []string{"proto/fwd", "controller/internal/endpoints", "controller/internal/compile"} {
		if covers(dir, path.Dir(name)) {
			return true
		}
	}
	return regexp.MustCompile(`^agent/internal/[^/]+/(plan|diff)[^/]*(\.go$|/)`).MatchString(name)
}
