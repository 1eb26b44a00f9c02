package uml

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPin holds that no CPU is given twice, that a process started so has that one alone, and that one given back is given
// again. The locks are the test's own: others may be running kernels.
func TestPin(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	look := []string{"grep", "Cpus_allowed_list", "/proc/self/status"}
	pin := func() ([]string, func()) {
		t.Helper()
		argv, release, err := Pin(slices.Clone(look))
		if err != nil {
			t.Fatal(err)
		}
		return argv, release
	}
	given := map[string]func(){}
	for range allowed.Count() {
		argv, release := pin()
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		cpu := strings.TrimSpace(strings.TrimPrefix(string(out), "Cpus_allowed_list:"))
		if fmt.Sprint(argv[:3]) != fmt.Sprintf("[taskset -c %s]", cpu) || given[cpu] != nil {
			t.Errorf("%v runs on %q, error %v; given before: %v", argv, cpu, err, given[cpu] != nil)
		}
		given[cpu] = release
	}
	if argv, release := pin(); !slices.Equal(argv, look) {
		t.Errorf("none is left, but %v was given", argv)
	} else {
		release()
	}
	for cpu, release := range given {
		release()
		if argv, _ := pin(); argv[2] != cpu {
			t.Errorf("CPU %s was given back; %v", cpu, argv)
		}
	}
}
