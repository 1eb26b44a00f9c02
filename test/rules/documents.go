package rules

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Documents lists the Markdown files that users and contributors read: those at the root, under docs and under charts.
// The result is sorted.
func Documents(tree fs.FS) ([]string, error) {
	documents, err := fs.Glob(tree, "*.md")
	if err != nil {
		return nil, fmt.Errorf("list documents: %w", err)
	}
	for _, dir := range []string{"docs", "charts"} {
		if !exists(tree, dir) {
			continue
		}
		err := fs.WalkDir(tree, dir, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && path.Ext(name) == ".md" {
				documents = append(documents, name)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list documents in %s: %w", dir, err)
		}
	}
	slices.Sort(documents)
	return documents, nil
}

// DocumentPaths reports code, links and commands in a document that name a file, folder or Makefile target that is not
// there. Prose is not looked at: "agent/controller" may be two words.
func DocumentPaths(tree fs.FS, document string, targets []string) ([]Finding, error) {
	text, err := fs.ReadFile(tree, document)
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	var findings []Finding
	fenced := false
	for i, line := range strings.Split(string(text), "\n") {
		report := func(text string) {
			findings = append(findings, Finding{Path: document, Line: i + 1, Text: text})
		}
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		for _, link := range links(line) {
			if !exists(tree, path.Join(path.Dir(document), link)) {
				report(fmt.Sprintf("link to %s, which does not exist", link))
			}
		}
		for _, code := range codeOf(line, fenced) {
			for _, name := range paths(code) {
				if !exists(tree, name) {
					report(fmt.Sprintf("names %s, which does not exist", name))
				}
			}
			for _, target := range made(code) {
				if !slices.Contains(targets, target) {
					report(fmt.Sprintf("names make %s, which the Makefile does not have", target))
				}
			}
		}
	}
	return findings, nil
}

// codeOf gives what is code in a line: all of it in a fence or where it is indented as code, else its code spans.
func codeOf(line string, fenced bool) []string {
	if fenced || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t") {
		return []string{line}
	}
	var spans []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
		spans = append(spans, match[1])
	}
	return spans
}

// links gives the targets of a line's links that lie in the repository, without their anchors.
func links(line string) []string {
	var targets []string
	for _, match := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(line, -1) {
		target, _, _ := strings.Cut(match[1], "#")
		if target != "" && !strings.Contains(target, ":") {
			targets = append(targets, target)
		}
	}
	return targets
}

// paths gives the words of a piece of code that begin with one of our folders.
func paths(code string) []string {
	ours := regexp.MustCompile(`^(proto|controller|agent|test|docs|charts|\.ci)/[\w./*-]+$`)
	var names []string
	for _, word := range strings.Fields(code) {
		word = strings.TrimPrefix(strings.Trim(word, `"'(),;:`), "./")
		word = strings.TrimRight(strings.TrimSuffix(word, "..."), "/.")
		if ours.MatchString(word) {
			names = append(names, word)
		}
	}
	return names
}

// made gives the targets of the make commands in a piece of code.
func made(code string) []string {
	var targets []string
	words := strings.Fields(code)
	start := slices.Index(words, "make")
	if start < 0 || (start > 0 && !slices.Contains([]string{"$", "#", "sudo", "&&"}, words[start-1])) {
		return nil
	}
	for _, word := range words[start+1:] {
		if !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(word) {
			if strings.Contains(word, "=") {
				continue
			}
			break
		}
		targets = append(targets, word)
	}
	return targets
}

// exists says whether a path, which may hold wildcards, names something in the tree.
func exists(tree fs.FS, name string) bool {
	matches, err := fs.Glob(tree, path.Clean(name))
	return err == nil && len(matches) > 0
}
