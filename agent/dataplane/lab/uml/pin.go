package uml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Pin keeps a kernel, started by the command line argv, on one CPU: it is one thread at a time anyway, and its processes take
// turns with it at every system call, which costs half if none of them has to wake up on another CPU (2 cores, load 6: 50
// times /bin/true took 1.0 s instead of 2.5 s). Each CPU takes one kernel of all processes that ask, until release; who finds
// none free gets argv as it is, so that the machine's kernel finds one.
func Pin(argv []string) (pinned []string, release func(), err error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, nil, fmt.Errorf("list CPUs: %w", err)
	}
	for cpu, left := 0, allowed.Count(); left > 0; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		left--
		lock, err := os.Create(filepath.Join(os.TempDir(), fmt.Sprintf("fairlead-uml-cpu%d.lock", cpu)))
		if err != nil {
			return nil, nil, fmt.Errorf("take CPU: %w", err)
		}
		switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return append([]string{"taskset", "-c", strconv.Itoa(cpu)}, argv...), func() { _ = lock.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, nil, errors.Join(fmt.Errorf("take CPU: lock %s: %w", lock.Name(), err), lock.Close())
		}
		_ = lock.Close()
	}
	return argv, func() {}, nil
}
