package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// runner runs commands of the host.
type runner interface {
	run(ctx context.Context, c call) error
}

// call is a command with its input. Its output goes to stdout; nil drops that.
type call struct {
	program string
	args    []string
	stdin   []byte
	stdout  io.Writer
}

// output runs a command and returns what it wrote to its standard output.
func output(ctx context.Context, r runner, program string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	err := r.run(ctx, call{program: program, args: args, stdout: &out})
	return out.Bytes(), err //nolint:wrapcheck // it names the command
}

// execRunner starts processes. They run in the network namespace of the calling thread.
type execRunner struct{}

// commandError is a command that failed, with what it said.
type commandError struct {
	command string
	code    int // exit code
	said    string
}

func (e *commandError) Error() string {
	return fmt.Sprintf("run %s: exit code %d: %s", e.command, e.code, e.said)
}

func (execRunner) run(ctx context.Context, c call) error {
	cmd := exec.CommandContext(ctx, c.program, c.args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.stdin), c.stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		said := strings.Join(strings.Fields(stderr.String()), " ")
		return &commandError{c.program, exit.ExitCode(), said[:min(len(said), 1000)]}
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", c.program, errors.Join(err, ctx.Err()))
	}
	return nil
}

// commands are the programs of one flavour and family.
type commands struct {
	flavor Flavor
	family fwd.Family
	// iptables, restore and save are names or paths of programs.
	iptables, restore, save string
}

// locked reports whether another process held the xtables lock all the time. The exit code says no more than that
// something was in the way, which in the nft flavour may be the rules themselves.
func (e *commandError) locked() bool { return e.code == 4 && strings.Contains(e.said, "xtables lock") }

// lockSeconds is how long one try waits for the xtables lock, so that a cancelled context is noticed.
const lockSeconds = 5

// write gives the kernel some text of iptables-restore, which says nothing about all that it does not name. Each table in it is
// one transaction. While another process holds the xtables lock it waits, until ctx ends.
func (c commands) write(ctx context.Context, r runner, text []byte) error {
	return retryLocked(ctx, func() error {
		return r.run(ctx, call{program: c.restore, args: []string{"--noflush", "--wait", strconv.Itoa(lockSeconds)}, stdin: text})
	})
}

// retryLocked calls again as long as another process holds the lock. Each call waits for it by itself.
func retryLocked(ctx context.Context, try func() error) error {
	for {
		err := try()
		var failed *commandError
		if err == nil || ctx.Err() != nil || !errors.As(err, &failed) || !failed.locked() {
			return err
		}
	}
}

// visible fails where the kernel or our rights do not allow to see the rules of this family.
func (c commands) visible(ctx context.Context, r runner) error {
	err := retryLocked(ctx, func() error {
		return r.run(ctx, call{program: c.iptables, args: []string{"--wait", strconv.Itoa(lockSeconds), "-t", natTable, "-S", "PREROUTING"}})
	})
	if err != nil {
		return fmt.Errorf("read %v rules: %w", c.family, err)
	}
	return nil
}

// read returns all rules of our two tables.
func (c commands) read(ctx context.Context, r runner) (*readback, error) {
	rb := newReadback(c.family)
	for _, table := range []string{filterTable, natTable} {
		if err := r.run(ctx, call{program: c.save, args: []string{"-t", table}, stdout: rb}); err != nil {
			return nil, fmt.Errorf("read %v rules: %w", c.family, err)
		}
		if rb.incompatible {
			return nil, fmt.Errorf("read %v rules: table %s holds rules that iptables cannot show: remove what nft added to it", c.family, table)
		}
	}
	return rb, nil
}

// object names a chain as people know it.
func (c commands) object(k chainKey) string {
	return c.iptables + " " + k.Table + " " + k.Name
}
