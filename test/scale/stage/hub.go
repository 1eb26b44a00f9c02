package stage

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/scale/swarm"
	"github.com/fairlead/fairlead/test/scale/watchers"
)

const (
	// inHub marks a process that lives in the network namespace.
	inHub = "FAIRLEAD_SCALE_IN_HUB"
	// childRole is "swarm:PATH" or "watchers:PATH" in a child; PATH is its configuration.
	childRole = "FAIRLEAD_SCALE_CHILD"
	hubLink   = "hub"
)

// HubAddress is where API server and controllers listen.
func HubAddress() netip.Addr { return netip.MustParseAddr("10.200.0.1") }

// FarAddress is another address of the hub, for agents that are to be cut off.
func FarAddress() netip.Addr { return netip.MustParseAddr("10.200.2.1") }

// Enter is called first in main: it makes this process what it was started as, a child or the driver in the hub, or starts
// the driver. It returns true in the driver; else the process ends with the code.
func Enter() (driver bool, code int) {
	if role, path, child := strings.Cut(os.Getenv(childRole), ":"); child {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) //nolint:forbidigo // called from main
		defer stop()
		mains := map[string]func(context.Context, string) error{"swarm": swarm.Main, "watchers": watchers.Main}
		if err := mains[role](ctx, path); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
			return false, 1
		}
		return false, 0
	}
	if os.Getenv(inHub) == "" {
		return false, runInHub()
	}
	if err := prepareHub(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare namespace:", err)
		return false, 1
	}
	return true, 0
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
	var limit syscall.Rlimit // 5,000 agents and watchers are many connections for a controller and an API server
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise limit of open files: %w", err)
	}
	return errors.Join(
		command("ip", "link", "set", "lo", "up"),
		command("ip", "link", "add", hubLink, "type", "bridge"),
		command("ip", "link", "set", hubLink, "up"),
		command("ip", "addr", "add", HubAddress().String()+"/16", "dev", hubLink),
		command("ip", "addr", "add", FarAddress().String()+"/32", "dev", hubLink),
	)
}

// CutOff drops every packet from and to FarAddress without a word, until Heal.
func CutOff() error {
	return errors.Join(
		command("iptables", "-w", "-A", "INPUT", "-s", FarAddress().String(), "-j", "DROP"),
		command("iptables", "-w", "-A", "INPUT", "-d", FarAddress().String(), "-j", "DROP"),
	)
}

// Heal ends CutOff.
func Heal() error { return command("iptables", "-w", "-F", "INPUT") }

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
