package sheet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Parts are the titles of docs/benchmarks.md, in their order. Each part is written by a run of its own, of which it says date and machine.
func Parts() []string {
	return []string{Agent, IPVS, Fanout, Large}
}

// Titles of the parts.
const (
	Agent  = "# Benchmarks: the agent, side by side with kube-proxy"
	IPVS   = "# IPVS mode, in a kernel of its own"
	Fanout = "# Fan-out: one controller, many agents"
	Large  = "# A large cluster: one controller, 100,000 endpoints"
)

// Keep writes a part, which begins with its title, into docs/benchmarks.md in place of an older one of the same title.
func Keep(root, part string) error {
	path := filepath.Join(root, "docs", "benchmarks.md")
	document, err := os.ReadFile(path) //nolint:gosec // of the repository
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read document: %w", err)
	}
	if err := os.WriteFile(path, []byte(Merge(string(document), part)), 0o644); err != nil { //nolint:gosec // for everybody
		return fmt.Errorf("write document: %w", err)
	}
	return nil
}

// Merge returns the document with a part in its place; what belongs to no part is dropped.
func Merge(document, part string) string {
	found := split(document)
	for title, text := range split(part) {
		found[title] = text
	}
	var kept []string
	for _, title := range Parts() {
		if text, ok := found[title]; ok {
			kept = append(kept, strings.TrimRight(text, "\n")+"\n")
		}
	}
	return strings.Join(kept, "\n")
}

// split returns parts by their titles.
func split(document string) map[string]string {
	found := map[string]string{}
	title := ""
	for line := range strings.Lines(document) {
		for _, t := range Parts() {
			if strings.TrimSpace(line) == t {
				title = t
			}
		}
		if title != "" {
			found[title] += line
		}
	}
	return found
}
