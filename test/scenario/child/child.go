// Package child starts processes that must not outlive the test: the kernel kills them when this process dies, however it
// dies.
//
// Input is a Config with a command; output is a Child that can be killed and waited for, its output in a log file. Its
// neighbours are package apiserver and package scenario.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Config says what to start.
type Config struct {
	// Name is for error messages.
	Name string
	// Log is the file that output is added to.
	Log string
	// Argv is the command; Env is added to the environment.
	Argv, Env []string
	// NewNetwork gives the child a network namespace of its own.
	NewNetwork bool
}

// Child is a process that was started.
type Child struct {
	cfg  Config
	cmd  *exec.Cmd
	done chan struct{}
}

// Start returns when the process exists.
func Start(cfg Config) (*Child, error) {
	log, err := os.OpenFile(cfg.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", cfg.Name, err)
	}
	c := &Child{cfg: cfg, cmd: exec.Command(cfg.Argv[0], cfg.Argv[1:]...), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Env = append(os.Environ(), cfg.Env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if cfg.NewNetwork {
		c.cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNET
	}
	started := make(chan error)
	go func() {
		// The death signal comes when the thread that started the child ends: it stays until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(c.done)
		defer log.Close()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Name, err)
	}
	return c, nil
}

// Pid is the process's number.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Kill returns when the process has ended.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // it may have ended already
	<-c.done
}

// Ended describes the end of a process that should run, with the end of its log.
func (c *Child) Ended() error {
	const tail = 4000
	content, err := os.ReadFile(c.cfg.Log)
	if err != nil {
		return errors.Join(fmt.Errorf("%s ended", c.cfg.Name), err)
	}
	return fmt.Errorf("%s ended; the end of %s:\n%s", c.cfg.Name, c.cfg.Log, content[max(0, len(content)-tail):])
}
