package stage

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/test/hub"
	"github.com/fairlead/fairlead/test/scale/swarm"
	"github.com/fairlead/fairlead/test/scale/watchers"
)

// childRole is "swarm:PATH" or "watchers:PATH" in a child; PATH is its configuration.
const childRole = "FAIRLEAD_SCALE_CHILD"

// FarAddress is another address of the hub, for agents that are to be cut off.
func FarAddress() netip.Addr { return netip.MustParseAddr("10.200.2.1") }

// Run is called first in main: it makes this process what it was started as, a child or the driver in the hub, or starts the
// driver. It returns the exit code.
func Run(driver func() int) int {
	role, path, child := strings.Cut(os.Getenv(childRole), ":")
	if !child {
		return hub.Run(func() int {
			if err := prepare(); err != nil {
				fmt.Fprintln(os.Stderr, "prepare namespace:", err)
				return 1
			}
			return driver()
		})
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) //nolint:forbidigo // called from main
	defer stop()
	mains := map[string]func(context.Context, string) error{"swarm": swarm.Main, "watchers": watchers.Main}
	if err := mains[role](ctx, path); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		return 1
	}
	return 0
}

// prepare lets the processes have many connections, for 5,000 agents and watchers, and gives the hub its other address.
func prepare() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise limit of open files: %w", err)
	}
	return hub.IP("addr", "add", FarAddress().String()+"/32", "dev", hub.Link)
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
