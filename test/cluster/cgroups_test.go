package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParseCgroupsTellsTheVersion(t *testing.T) {
	cases := []struct {
		name, table    string
		unified, fails bool
		paths, traces  []string
	}{
		{
			name:    "version 2",
			table:   "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n/dev/sda / ext4 rw 0 0\n",
			unified: true,
			paths:   []string{"/sys/fs/cgroup/fl0"}, traces: []string{"/sys/fs/cgroup/fl0"},
		},
		{
			name:   "hybrid",
			table:  "cgroup /sys/fs/cgroup/memory cgroup rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
			paths:  []string{"/sys/fs/cgroup/cpu/fl0", "/sys/fs/cgroup/memory/fl0"},
			traces: []string{"/sys/fs/cgroup/cpu/fl0", "/sys/fs/cgroup/memory/fl0", "/sys/fs/cgroup/unified/fl0"},
		},
		{name: "none", table: "/dev/sda / ext4 rw 0 0\n", fails: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseCgroups(c.table)
			if (err != nil) != c.fails {
				t.Fatalf("error = %v", err)
			}
			if got.unified != c.unified || !slices.Equal(got.paths("fl0"), c.paths) || !slices.Equal(got.traces("fl0"), c.traces) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestCreateHandsControllersDown imitates a version 2 tree by plain files: this
// machine may have the other version.
func TestCreateHandsControllersDown(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"", "fl0"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"cgroup.controllers": "cpu memory pids rdma\n", "cgroup.subtree_control": ""} {
			if err := os.WriteFile(filepath.Join(root, dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	groups := cgroups{unified: true, roots: []string{root}}
	if err := groups.create("fl0/control"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "fl0", "control")); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{"", "fl0"} {
		got, err := os.ReadFile(filepath.Join(root, dir, "cgroup.subtree_control"))
		if err != nil || string(got) != "+rdma" { // a plain file keeps the last write
			t.Errorf("subtree_control of %q = %q, %v: want a write per controller", dir, got, err)
		}
	}
}

func TestCopyCPUsFillsAVersion1Group(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{"cpuset.cpus": "0-3\n", "cpuset.mems": "0\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	child := filepath.Join(root, "fl0")
	if err := os.Mkdir(child, 0o755); err != nil {
		t.Fatal(err)
	}
	// The kernel makes these with the folder.
	if err := os.WriteFile(filepath.Join(child, "cpuset.cpus"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(child, "cpuset.mems"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copyCPUs(child); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(child, "cpuset.cpus")); err != nil || string(got) != "0-3\n" {
		t.Errorf("cpuset.cpus = %q, %v", got, err)
	}
}
