package apiserver

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is a child that the kernel kills when this process dies.
type process struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{} // closed when it has ended
}

// launch starts a child whose output goes to a log file.
func launch(name, logPath string, argv []string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", name, err)
	}
	p := &process{name: name, log: logPath, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		// The death signal comes when the thread that started the child ends: it stays until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer log.Close()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// kill returns when the child has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// ended describes the end of a child that should run, with the end of its log.
func (p *process) ended() error {
	const tail = 2000
	content, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s ended, and its log is unreadable: %w", p.name, err)
	}
	return fmt.Errorf("%s ended; the end of %s:\n%s", p.name, p.log, content[max(0, len(content)-tail):])
}
