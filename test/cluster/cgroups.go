package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// cgroups is the machine's control group file system: one tree in version 2, a tree
// per controller in version 1.
type cgroups struct {
	unified bool
	roots   []string // mount points of the trees that processes are put into, sorted
	aside   []string // mount points of trees where containerd may make groups as well
}

// findCgroups reads from the mount table which version the machine uses. A hybrid
// machine, which mounts a version 2 tree without controllers beside the version 1
// trees, counts as version 1, as it does for kubelet and runc.
func findCgroups() (cgroups, error) {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return cgroups{}, fmt.Errorf("find control groups: %w", err)
	}
	return parseCgroups(string(table))
}

func parseCgroups(table string) (cgroups, error) {
	var v1, v2 []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		switch fields[2] {
		case "cgroup":
			v1 = append(v1, fields[1])
		case "cgroup2":
			v2 = append(v2, fields[1])
		}
	}
	slices.Sort(v1)
	switch {
	case len(v1) > 0:
		return cgroups{roots: v1, aside: v2}, nil
	case len(v2) > 0:
		return cgroups{unified: true, roots: v2[:1]}, nil
	}
	return cgroups{}, errors.New("find control groups: none are mounted: mount cgroup2 on /sys/fs/cgroup")
}

// paths returns the group's folder in every tree that processes are put into.
func (c cgroups) paths(group string) []string { return below(c.roots, group) }

// traces returns every folder that the group may have left, aside ones too.
func (c cgroups) traces(group string) []string {
	return below(slices.Concat(c.roots, c.aside), group)
}

func below(roots []string, group string) []string {
	all := make([]string, len(roots))
	for i, root := range roots {
		all[i] = filepath.Join(root, group)
	}
	return all
}

// create makes a group such as fl0/node1/system, with those above it.
func (c cgroups) create(group string) error {
	for _, root := range c.roots {
		path := root
		for part := range strings.SplitSeq(group, "/") {
			// A version 2 group hands controllers down before it has a group below.
			if err := c.handDown(path); err != nil {
				return err
			}
			path = filepath.Join(path, part)
			if err := os.MkdirAll(path, 0o755); err != nil {
				return fmt.Errorf("make control group: %w", err)
			}
			if err := copyCPUs(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// handDown enables the controllers that containers need for the groups below path.
func (c cgroups) handDown(path string) error {
	if !c.unified {
		return nil
	}
	offered, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read controllers: %w", err)
	}
	for _, controller := range strings.Fields(string(offered)) {
		err := os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+controller), 0)
		needed := slices.Contains([]string{"cpu", "memory", "pids"}, controller)
		if err != nil && needed {
			return fmt.Errorf("enable controller %s below %s: %w: the group may hold processes itself; run on the machine, not in a container", controller, path, err)
		}
	}
	return nil
}

// copyCPUs gives a version 1 cpuset what the one above has; it starts empty, and takes
// no process before it is filled.
func copyCPUs(path string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		above, err := os.ReadFile(filepath.Join(filepath.Dir(path), file))
		if err != nil || len(strings.TrimSpace(string(above))) == 0 {
			continue // another controller, or version 2, where empty means all
		}
		if err := os.WriteFile(filepath.Join(path, file), above, 0); err != nil {
			return fmt.Errorf("fill %s: %w", file, err)
		}
	}
	return nil
}
