package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/test/cluster/footprint"
)

// program is a process of the cluster that stays: its name in logs and footprint, the
// control group it joins and the command.
type program struct {
	name  string
	group string
	argv  []string
}

// daemon is a program that runs. Its exit is seen by closing done.
type daemon struct {
	process footprint.Process
	log     string
	done    chan struct{}
}

// join moves the shell into every control group of its first argument, which are
// separated by colons, and becomes the rest: no instruction of the program itself
// runs outside, hence nothing that it starts can escape the clean-up.
const join = `IFS=:; for dir in $1; do echo $$ >"$dir/cgroup.procs" || exit 1; done; unset IFS; shift; exec "$@"`

// path is where programs of a node find others; root's own may lack the sbin folders.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// launch starts a program that outlives this process. Its output goes to a log file.
func (c *Cluster) launch(p program) (*daemon, error) {
	logPath := filepath.Join(c.files.logs(), p.name+".log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", p.name, err)
	}
	defer log.Close()
	groups := strings.Join(c.cgroups.paths(p.group), ":")
	cmd := exec.Command("sh", slices.Concat([]string{"-c", join, "sh", groups}, p.argv)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c.follow(p.name, logPath, cmd)
}

// follow starts the command, writes it down and waits for its end in the background.
func (c *Cluster) follow(name, log string, cmd *exec.Cmd) (*daemon, error) {
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	d := &daemon{log: log, done: make(chan struct{})}
	process, err := footprint.Identify(name, cmd.Process.Pid)
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(d.done)
	}()
	if err != nil {
		return nil, d.exited(name)
	}
	d.process = process
	if err := c.ledger.Record(footprint.Footprint{Processes: []footprint.Process{process}}); err != nil {
		return nil, err
	}
	return d, nil
}

// exited describes the end of a program that should run, with the end of its log.
func (d *daemon) exited(name string) error {
	const tail = 2000
	content, err := os.ReadFile(d.log)
	if err != nil {
		return fmt.Errorf("%s ended, and its log is unreadable: %w", name, err)
	}
	return fmt.Errorf("%s ended; the end of %s:\n%s", name, d.log, content[max(0, len(content)-tail):])
}

// await waits until done says yes, or until the daemon (nil: none) ends.
func (d *daemon) await(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	var ended <-chan struct{}
	name := what
	if d != nil {
		ended, name = d.done, d.process.Name
	}
	return poll(ctx, what, func(ctx context.Context) (bool, error) {
		select {
		case <-ended:
			return false, d.exited(name)
		default:
			return done(ctx)
		}
	})
}

// kill ends the program of that name at once and waits until it is gone.
func (c *Cluster) kill(ctx context.Context, name string) error {
	process, found := c.ledger.Process(name)
	if !found {
		return nil
	}
	if err := process.Kill(); err != nil {
		return err
	}
	return poll(ctx, name+" to end", func(context.Context) (bool, error) { return !process.Alive(), nil })
}
