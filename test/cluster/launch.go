package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Program is a process that a test or the demo put on the machine or on a node. It
// outlives the caller and ends with the cluster at the latest.
type Program struct {
	daemon *daemon
	// killer is the signal by which the process ends at once: one that only stands for a program in another kernel passes it on.
	killer unix.Signal
}

// Launch starts a program on the host; its output is appended to NAME.log in Logs.
func (c *Cluster) Launch(name string, argv ...string) (*Program, error) {
	d, err := c.launch(program{name: name, group: c.group(controlGroup), argv: argv})
	if err != nil {
		return nil, err
	}
	return &Program{daemon: d, killer: unix.SIGKILL}, nil
}

// Launch starts a program on the node; its output is appended to NODE-NAME.log in Logs.
func (n *Node) Launch(name string, argv ...string) (*Program, error) {
	d, err := n.launch(name, argv...)
	if err != nil {
		return nil, err
	}
	killer := unix.SIGKILL
	if n.IPVS {
		killer = unix.SIGUSR1 // see guest.Streams
	}
	return &Program{daemon: d, killer: killer}, nil
}

// Done is closed when the program has ended.
func (p *Program) Done() <-chan struct{} { return p.daemon.done }

// Log is the path of the program's output.
func (p *Program) Log() string { return p.daemon.log }

// PID is the program's process, for what /proc tells of it; on a node with a kernel of its own, the process that stands for it.
func (p *Program) PID() int { return p.daemon.process.PID }

// Kill ends the program at once, as kill -9 does, and returns when it is gone.
func (p *Program) Kill(ctx context.Context) error {
	if err := p.daemon.process.Signal(p.killer); err != nil {
		return err
	}
	return p.wait(ctx)
}

// Terminate asks the program to end and returns when it has.
func (p *Program) Terminate(ctx context.Context) error {
	if err := p.daemon.process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	return p.wait(ctx)
}

func (p *Program) wait(ctx context.Context) error {
	select {
	case <-p.daemon.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %s to end: %w", p.daemon.process.Name, ctx.Err())
	}
}

// Logs is the node's /var/log, as the host sees it; Pods' logs are below it.
func (n *Node) Logs() string { return filepath.Join(n.dir(), "log") }
