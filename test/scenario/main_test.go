package scenario

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inHub marks a process that lives in the hub, the network namespace of API server and controller.
const inHub = "FAIRLEAD_SCENARIO_IN_HUB"

// hubLink is the bridge that agents' namespaces are connected to.
const hubLink = "hub"

// hubAddress is where API server and controller listen; agents are 10.200.1.x.
func hubAddress() netip.Addr { return netip.MustParseAddr("10.200.0.1") }

// TestMain runs the tests in a namespace of their own, by starting this program again in there.
func TestMain(m *testing.M) {
	if os.Getenv(agentArguments) != "" {
		os.Exit(runAgent())
	}
	if os.Getenv(inHub) != "" {
		if err := prepareHub(); err != nil {
			fmt.Fprintln(os.Stderr, "prepare namespace:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	os.Exit(runInHub())
}

// runInHub returns the exit code of the same program in a new network namespace.
func runInHub() int {
	runtime.LockOSThread() // the death signal below is bound to this thread
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "find own program:", err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inHub+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "run in a network namespace (root is needed):", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

func prepareHub() error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", hubLink, "type", "bridge"},
		{"link", "set", hubLink, "up"},
		{"addr", "add", hubAddress().String() + "/16", "dev", hubLink},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}
