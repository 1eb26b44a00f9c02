// Package table judges what package contest found by the project's targets, and writes it down for readers.
//
// Input are Results and a Header with the machine; output is a Markdown document, made of nothing but these figures. It is
// the same text for the same input. Its neighbour is the command cmd/bench.
package table

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Header says where and when the figures were taken.
type Header struct {
	// Root is the repository's folder; Command is what was typed.
	Root, Command string
	// Quick: one small round, of which no target is judged.
	Quick bool

	date, version, machine, loadBefore, loadAfter string
	took                                          time.Duration
}

// Look reads what the machine is.
func (h *Header) Look(now time.Time) error {
	h.date = now.UTC().Format("2006-01-02 15:04 UTC")
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return fmt.Errorf("look at the machine: %w", err)
	}
	release, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-")
	h.machine = fmt.Sprintf("%d cores (%s), Linux %s, %s", runtime.NumCPU(), runtime.GOARCH, release, runtime.Version())
	tool, err := exec.Command("iptables", "--version").Output()
	if err != nil {
		return fmt.Errorf("look at iptables: %w", err)
	}
	if words := strings.Fields(string(tool)); len(words) > 1 {
		h.machine += ", iptables " + words[1]
	}
	out, err := exec.Command("git", "-C", h.Root, "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		out = []byte("unknown") // a tree without its history
	}
	h.version = strings.TrimSpace(string(out))
	h.loadBefore, err = load()
	return err
}

// Done notes what is only known at the end.
func (h *Header) Done(took time.Duration) (err error) {
	h.took = took
	h.loadAfter, err = load()
	return err
}

func load() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", fmt.Errorf("look at the load: %w", err)
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one, nil
}
