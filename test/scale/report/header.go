package report

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

	date, version, machine, loadBefore, loadAfter string
	took                                          time.Duration
}

// Look reads what the machine is, before the measurement.
func (h *Header) Look(now time.Time) error {
	kernel, err := read("/proc/sys/kernel/osrelease", "-")
	if err != nil {
		return err
	}
	h.date = now.UTC().Format("2006-01-02 15:04 UTC")
	h.machine = fmt.Sprintf("%d cores (%s), Linux %s, %s", runtime.NumCPU(), runtime.GOARCH, kernel, runtime.Version())
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

// read returns the beginning of a file, up to a separator.
func read(path, separator string) (string, error) {
	text, err := os.ReadFile(path) //nolint:gosec // constants
	if err != nil {
		return "", fmt.Errorf("look at the machine: %w", err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), separator)
	return first, nil
}
