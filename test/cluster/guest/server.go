package guest

import (
	"context"
	"crypto/subtle"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Server runs commands.
type Server struct {
	// Secret is what clients have to know.
	Secret string
	// Clock is this machine's.
	Clock Clock
}

// Serve runs what clients ask for, until ctx ends; all that still runs is killed then.
func (s Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("accept command: %w", err)
		}
		running.Go(func() {
			defer conn.Close()
			_ = s.answer(ctx, conn) // the client has been told, or is gone
		})
	}
}

// answer does what one client asks for.
func (s Server) answer(ctx context.Context, conn net.Conn) error {
	in, out := gob.NewDecoder(conn), newSender(conn)
	var r request
	if err := in.Decode(&r); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(r.Secret), []byte(s.Secret)) != 1 {
		return out.send(output{Ended: true, Problem: "the secret is wrong"})
	}
	if len(r.Argv) == 0 {
		return out.send(s.tell(r.Shift))
	}
	return run(ctx, r.Argv, in, out)
}

// tell tells the time, after it has moved the clock.
func (s Server) tell(shift time.Duration) output {
	if shift != 0 {
		if err := s.Clock.Shift(shift); err != nil {
			return output{Ended: true, Problem: err.Error()}
		}
	}
	return output{Ended: true, Now: s.Clock.Now()}
}

// run runs one command until it ends or the client falls silent.
func run(ctx context.Context, argv []string, in *gob.Decoder, out *sender) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Stdout = writer(func(data []byte) error { return out.send(output{Stdout: data}) })
	cmd.Stderr = writer(func(data []byte) error { return out.send(output{Stderr: data}) })
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return out.send(output{Ended: true, Problem: err.Error()})
	}
	go obey(in, cmd, stdin)
	err = cmd.Wait()
	return out.send(output{Ended: true, Code: code(cmd), Problem: problem(err)})
}

// obey passes on what the client says; when it falls silent for good, the command is killed with all that it has started.
func obey(in *gob.Decoder, cmd *exec.Cmd, stdin io.WriteCloser) {
	for {
		var said input
		if err := in.Decode(&said); err != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			return
		}
		switch {
		case said.Closed:
			_ = stdin.Close()
		case said.Signal == syscall.SIGKILL:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		case said.Signal != 0:
			_ = cmd.Process.Signal(said.Signal)
		default:
			_, _ = stdin.Write(said.Data) // a command need not read
		}
	}
}

func code(cmd *exec.Cmd) int {
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// problem is what went wrong beside the exit code.
func problem(err error) string {
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) {
		return ""
	}
	return err.Error()
}

type writer func([]byte) error

// Write implements io.Writer.
func (w writer) Write(data []byte) (int, error) { return len(data), w(data) }
