package rules

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// Targets gives the explicit targets of the Makefile in order of appearance, and a finding for each that help would not
// list since it has no "## explanation". Files, patterns and FORCE are no targets for people.
func Targets(tree fs.FS) ([]string, []Finding, error) {
	text, err := fs.ReadFile(tree, "Makefile")
	if err != nil {
		return nil, nil, fmt.Errorf("read targets: %w", err)
	}
	rule := regexp.MustCompile(`^([a-z0-9][a-z0-9-]*):([^=]|$)`)
	var targets []string
	var findings []Finding
	for i, line := range strings.Split(string(text), "\n") {
		match := rule.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		targets = append(targets, match[1])
		if _, explanation, _ := strings.Cut(line, "## "); strings.TrimSpace(explanation) == "" {
			findings = append(findings, Finding{Path: "Makefile", Line: i + 1, Text: fmt.Sprintf("target %s has no ## explanation for help", match[1])})
		}
	}
	return targets, findings, nil
}

// MissingTargets reports the targets that documentation and CI count on and the Makefile lacks.
func MissingTargets(targets []string) []Finding {
	var findings []Finding
	for _, wanted := range []string{
		"help", "build", "test", "lint", "generate", "verify-generate", "demo", "cluster-up", "cluster-down", "e2e", "bench", "soak", "images",
	} {
		if !slices.Contains(targets, wanted) {
			findings = append(findings, Finding{Path: "Makefile", Text: "no target " + wanted})
		}
	}
	return findings
}

// Changelog reports a CHANGELOG.md that says nothing: under its first version heading there has to be an item.
func Changelog(tree fs.FS) ([]Finding, error) {
	text, err := fs.ReadFile(tree, "CHANGELOG.md")
	if err != nil {
		return nil, fmt.Errorf("read changes: %w", err)
	}
	_, newest, found := strings.Cut(string(text), "\n## ")
	newest, _, _ = strings.Cut(newest, "\n## ")
	if !found || !strings.Contains(newest, "\n- ") {
		return []Finding{{Path: "CHANGELOG.md", Text: "no item under the newest version: say what changed for a user"}}, nil
	}
	return nil, nil
}

// Dependencies reports the packages that a module must not depend on, directly or through others: those at or below one of
// the refused import paths.
func Dependencies(module string, packages, refused []string) []Finding {
	var findings []Finding
	for _, name := range packages {
		if slices.ContainsFunc(refused, func(prefix string) bool { return covers(prefix, name) }) {
			findings = append(findings, Finding{Path: module, Text: "must not depend on " + name})
		}
	}
	return findings
}

// Foreign gives the packages that are neither of the standard library nor below one of the accepted import paths. The
// standard library has no dot in the first element of its paths; what it vendors begins with "vendor/".
func Foreign(packages, accepted []string) []string {
	return slices.DeleteFunc(slices.Clone(packages), func(name string) bool {
		first, _, _ := strings.Cut(name, "/")
		return !strings.Contains(first, ".") || slices.ContainsFunc(accepted, func(prefix string) bool { return covers(prefix, name) })
	})
}
