// Package sheet writes what the measurements of this repository have in common: on what machine they were taken, and tables.
//
// Input are cells and what the machine says of itself; output is Markdown. Packages test/bench/table and test/scale/report
// fill the tables.
package sheet

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// None is the cell of what was not measured.
const None = "–"

// Header says where and when figures were taken.
type Header struct {
	// Root is the repository's folder; Command is what was typed.
	Root, Command string

	date, version, machine, loadBefore, loadAfter string
	took                                          time.Duration
}

// Look reads what the machine is, before the measurement; tools are added to it.
func (h *Header) Look(now time.Time, tools ...string) (err error) {
	kernel, err := read("/proc/sys/kernel/osrelease", "-")
	if err != nil {
		return err
	}
	h.date = now.UTC().Format("2006-01-02 15:04 UTC")
	h.machine = fmt.Sprintf("%d cores (%s), Linux %s, %s", runtime.NumCPU(), runtime.GOARCH, kernel, runtime.Version())
	h.machine = strings.Join(append([]string{h.machine}, tools...), ", ")
	h.version = "unknown" // in a tree without its history
	if out, err := exec.Command("git", "-C", h.Root, "describe", "--tags", "--always", "--dirty").Output(); err == nil {
		h.version = strings.TrimSpace(string(out))
	}
	h.loadBefore, err = read("/proc/loadavg", " ")
	return err
}

// Done notes what is only known at the end.
func (h *Header) Done(took time.Duration) (err error) {
	h.took = took
	h.loadAfter, err = read("/proc/loadavg", " ")
	return err
}

// String is the sentence that every document begins with.
func (h Header) String() string {
	return fmt.Sprintf("Written by `%s` on %s with version %s, on %s; load average %s before and %s after the run, which took %.0f minutes.",
		h.Command, h.date, h.version, h.machine, h.loadBefore, h.loadAfter, h.took.Minutes())
}

// read returns the beginning of a file, up to a separator.
func read(path, separator string) (string, error) {
	text, err := os.ReadFile(path) //nolint:gosec // constants
	if err != nil {
		return "", fmt.Errorf("look at the machine: %w", err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), separator)
	return first, nil
}

// Head begins a table: its title, what is to be said of it, and its columns, the first of which is text and the others are
// numbers.
func Head(b *strings.Builder, title, text string, columns []string) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n", title, text)
	Row(b, columns)
	rule := make([]string, len(columns))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	Row(b, rule)
}

// Row writes one row.
func Row(b *strings.Builder, cells []string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}
