package contest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// group is a memory control group, of either version: the kernel charges to it what it keeps for the group's processes,
// also after one of them, such as an iptables-restore, has ended.
type group struct {
	dir     string
	unified bool
}

func newGroup() (*group, error) {
	g := &group{}
	root := "/sys/fs/cgroup/memory"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		root, g.unified = "/sys/fs/cgroup", true
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0o600); err != nil {
			return nil, fmt.Errorf("make control group: %w", err)
		}
	}
	var err error
	if g.dir, err = os.MkdirTemp(root, "fairlead-bench-"); err != nil {
		return nil, fmt.Errorf("make control group: %w", err)
	}
	return g, nil
}

// members is the file that takes the number of a process to join.
func (g *group) members() string { return filepath.Join(g.dir, "cgroup.procs") }

// kernel is what the kernel holds for the group, in bytes.
func (g *group) kernel() (int64, error) {
	if !g.unified {
		text, err := os.ReadFile(filepath.Join(g.dir, "memory.kmem.usage_in_bytes"))
		if err != nil {
			return 0, fmt.Errorf("read kernel memory: %w", err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read kernel memory: %w", err)
		}
		return n, nil
	}
	text, err := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
	if err != nil {
		return 0, fmt.Errorf("read kernel memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "kernel "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read kernel memory: %w", err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("read kernel memory: %s has no field kernel: Linux 5.18 or later is needed", g.dir)
}

// remove lets go of the group, whose processes have ended. One that dies at this moment keeps its group busy: then it stays,
// empty.
func (g *group) remove() error {
	if err := os.Remove(g.dir); err != nil && !busy(err) {
		return fmt.Errorf("remove control group: %w", err)
	}
	return nil
}

func busy(err error) bool { return errors.Is(err, unix.EBUSY) }
