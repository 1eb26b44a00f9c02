// Package hub runs a test program in a network namespace of its own, in which API servers, controllers and agents find each
// other over a bridge and disturb nobody.
//
// Input is what is to run there; output is its exit code. It must be called before anything else is begun, for it starts the
// program again. Its users are the scenarios and the fan-out bench. Root is needed.
package hub

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Link is the bridge of the namespace; further namespaces are connected to it.
const Link = "hub"

// inside marks a process that lives in the hub.
const inside = "FAIRLEAD_IN_HUB"

// Address is the bridge's own, within 10.200.0.0/16.
func Address() netip.Addr { return netip.MustParseAddr("10.200.0.1") }

// Run returns what run returned in the hub, or 1 with a line of what went wrong before.
func Run(run func() int) int {
	if os.Getenv(inside) == "" {
		return again()
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", Link, "type", "bridge"},
		{"link", "set", Link, "up"},
		{"addr", "add", Address().String() + "/16", "dev", Link},
	} {
		if err := IP(args...); err != nil {
			fmt.Fprintln(os.Stderr, "prepare namespace:", err)
			return 1
		}
	}
	return run()
}

// again returns the exit code of the same program in a new network namespace.
func again() int {
	runtime.LockOSThread() // the death signal below is bound to this thread
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "find own program:", err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "run in a network namespace (root is needed):", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// IP runs the command ip.
func IP(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
