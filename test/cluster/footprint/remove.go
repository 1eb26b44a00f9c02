package footprint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	patience = 30 * time.Second      // until a killed process must be gone
	interval = 20 * time.Millisecond // between two looks; the kernel offers no event that covers all of them
)

// Remove takes everything recorded off the machine and deletes the state file at last,
// so that an interrupted removal can be repeated. What is gone already is no error.
func (l *Ledger) Remove(ctx context.Context) error {
	held := l.Held()
	// Processes first: they hold the namespaces, the mounts within, and the groups.
	if err := killAll(ctx, held); err != nil {
		return err
	}
	var problems []error
	for _, link := range held.Links {
		if _, err := os.Stat("/sys/class/net/" + link); err == nil {
			problems = append(problems, run(ctx, "ip", "link", "delete", link))
		}
	}
	for _, name := range held.Namespaces {
		if _, err := os.Stat(NamespacePath(name)); err == nil {
			problems = append(problems, run(ctx, "ip", "netns", "delete", name))
		}
	}
	for _, group := range held.Cgroups {
		problems = append(problems, removeCgroup(ctx, group))
	}
	for _, path := range held.Paths {
		problems = append(problems, removePath(ctx, path))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("remove cluster: %w", err)
	}
	l.mu.Lock()
	l.held = Footprint{}
	l.mu.Unlock()
	if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove state file: %w", err)
	}
	return nil
}

// NamespacePath is the file by which the kernel names a network namespace.
func NamespacePath(name string) string { return "/run/netns/" + name }

// Living returns every living process of the footprint, sorted by process id.
func (f Footprint) Living() ([]Process, error) {
	found := map[int]Process{}
	for _, p := range f.Processes {
		if p.Alive() {
			found[p.PID] = p
		}
	}
	for _, group := range f.Cgroups {
		if err := inCgroup(group, found); err != nil {
			return nil, err
		}
	}
	if err := inNamespaces(f.Namespaces, found); err != nil {
		return nil, err
	}
	delete(found, os.Getpid())
	living := make([]Process, 0, len(found))
	for _, p := range found {
		living = append(living, p)
	}
	slices.SortFunc(living, func(a, b Process) int { return a.PID - b.PID })
	return living, nil
}

// killAll kills until nothing is left: a process may have started another meanwhile.
func killAll(ctx context.Context, held Footprint) error {
	return until(ctx, "processes to end", func() (bool, error) {
		living, err := held.Living()
		if err != nil {
			return false, err
		}
		for _, p := range living {
			if err := p.Kill(); err != nil {
				return false, err
			}
		}
		return len(living) == 0, nil
	})
}

// inCgroup adds the processes of a group and of the groups below it.
func inCgroup(root string, found map[int]Process) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || entry.Name() != "cgroup.procs" {
			return err
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, field := range strings.Fields(string(content)) {
			if pid, err := strconv.Atoi(field); err == nil {
				add(pid, "member of "+filepath.Dir(path), found)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list control group %s: %w", root, err)
	}
	return nil
}

// inNamespaces adds the processes whose network namespace is one of names: programs
// that a test started on a node and did not live to end.
func inNamespaces(names []string, found map[int]Process) error {
	var ours []os.FileInfo
	for _, name := range names {
		if info, err := os.Stat(NamespacePath(name)); err == nil {
			ours = append(ours, info)
		}
	}
	files, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			continue // it ended
		}
		if slices.ContainsFunc(ours, func(one os.FileInfo) bool { return os.SameFile(one, info) }) {
			if pid, err := strconv.Atoi(strings.Split(file, "/")[2]); err == nil {
				add(pid, "in a namespace", found)
			}
		}
	}
	return nil
}

func add(pid int, name string, found map[int]Process) {
	if p, err := Identify(name, pid); err == nil && p.Alive() {
		found[pid] = p
	}
}

// removeCgroup removes a tree of groups from its leaves. The kernel says busy until
// the last process has left for good.
func removeCgroup(ctx context.Context, root string) error {
	return until(ctx, "control group "+root+" to empty", func() (bool, error) {
		var groups []string
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return nil // what vanishes while we look is what we want
		})
		if err != nil {
			return false, fmt.Errorf("list control group %s: %w", root, err)
		}
		for _, group := range slices.Backward(groups) {
			if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EBUSY) {
				return false, fmt.Errorf("remove control group: %w", err)
			}
		}
		_, err = os.Stat(root)
		return errors.Is(err, fs.ErrNotExist), nil
	})
}

// removePath removes a tree. Mounts of a node vanish with its last process, a moment
// after it: until then their places are busy.
func removePath(ctx context.Context, path string) error {
	return until(ctx, path+" to be free", func() (bool, error) {
		err := os.RemoveAll(path)
		if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("remove: %w", err)
		}
		return true, nil
	})
}

func until(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if ok, err := done(); err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-ticker.C:
		}
	}
}

func run(ctx context.Context, argv ...string) error {
	if output, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, output)
	}
	return nil
}
