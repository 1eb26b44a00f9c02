// Package kernel runs the contest in a user-mode Linux kernel: one boot for all visits, since the machine's own kernel may
// lack IPVS.
//
// Input is a contest.Config; output are the Results. Run is outside: it boots the kernel, whose first program is this very
// executable. Inside runs there, with the namespaces, servers and contestants of package contest as on any machine, and
// hands what it found back through a file. It needs Debian's package user-mode-linux, and root. Its neighbours are contest
// and the command cmd/bench.
package kernel

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/agent/dataplane/lab/uml"
	"github.com/fairlead/fairlead/test/bench/contest"
)

const (
	megabytes = 2048
	// Flag is what this executable is called with in the kernel, before the folder of its files.
	Flag = "--inside"
	// said begins the lines of the console that are for people.
	said = "bench: "
)

// job and outcome are what goes in and comes out, as files in one folder.
type job struct {
	Modes    []contest.Mode
	Plan     []contest.Stage
	Programs map[string]string
}

type outcome struct {
	Results []contest.Result
	// Error is why there are no more of them; empty: there are all.
	Error string
}

// stopped is the Error until the last stage has ended: a kernel that stops in the middle says nothing.
const stopped = "the kernel stopped"

func jobFile(dir string) string     { return filepath.Join(dir, "job.json") }
func outcomeFile(dir string) string { return filepath.Join(dir, "outcome.json") }

// script gives the kernel what the machine has anyway: control groups, whose memory is measured, and IPv6. The folder is the
// machine's, and can be written.
const script = `mount -t cgroup2 none /sys/fs/cgroup
modprobe ipv6
mount -t hostfs -o '%[1]s' none '%[1]s'
'%[2]s' ` + Flag + ` '%[1]s'`

// Run runs the contest in a kernel of its own, in the folder cfg.Dir. Beside an error are the Results of the stages that had
// ended before.
func Run(ctx context.Context, cfg contest.Config) ([]contest.Result, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp(cfg.Dir, "kernel-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if err := write(jobFile(dir), job{cfg.Modes, cfg.Plan, cfg.Programs}); err != nil {
		return nil, err
	}
	console, err := boot(ctx, uml.Kernel{Dir: dir, Megabytes: megabytes, Init: fmt.Sprintf(script, dir, executable)}, cfg.Progress)
	if err != nil {
		return nil, err
	}
	var o outcome
	text, err := os.ReadFile(outcomeFile(dir))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was measured in the kernel: %w; its console ends with:\n%s", err, console)
	}
	switch o.Error {
	case "":
		return o.Results, nil
	case stopped:
		return o.Results, fmt.Errorf("measure in the kernel: %s; its console ends with:\n%s", stopped, console)
	}
	return o.Results, fmt.Errorf("measure in the kernel: %s", o.Error)
}

// boot runs a kernel until it halts, and returns the end of what was on its console, but for what people were told.
func boot(ctx context.Context, k uml.Kernel, progress io.Writer) (console string, err error) {
	argv, err := k.Argv()
	if err != nil {
		return "", fmt.Errorf("boot a kernel: %w", err)
	}
	argv, release, err := uml.Pin(argv)
	if err != nil {
		return "", fmt.Errorf("boot a kernel: %w", err)
	}
	defer release()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// All processes of the kernel are processes of the machine; they end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("boot a kernel: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("boot a kernel: %w", err)
	}
	console = read(out, progress)
	_ = cmd.Wait() // its exit code says nothing about what ran in it
	if ctx.Err() != nil {
		return "", fmt.Errorf("measure in the kernel: %w; its console ends with:\n%s", context.Cause(ctx), console)
	}
	return console, nil
}

// read passes on what is for people and returns the end of all the rest.
func read(from io.Reader, progress io.Writer) string {
	const most = 4000
	var rest bytes.Buffer
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if text, ok := strings.CutPrefix(line, said); ok {
			fmt.Fprintln(progress, text)
			continue
		}
		fmt.Fprintln(&rest, line)
		rest.Next(max(0, rest.Len()-most))
	}
	return rest.String()
}

// Inside does what Run asked for, in the kernel. The error is what could not even be handed back.
func Inside(ctx context.Context, dir string) error {
	var j job
	text, err := os.ReadFile(jobFile(dir))
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	if err != nil {
		return fmt.Errorf("read what to measure: %w", err)
	}
	own, err := os.MkdirTemp("", "contest-")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	// One stage after the other is handed over, since a stage may take half an hour.
	var o outcome
	for _, stage := range j.Plan {
		o.Error = stopped
		if err := write(outcomeFile(dir), o); err != nil {
			return err
		}
		results, err := contest.Run(ctx, contest.Config{
			Modes: j.Modes, Plan: []contest.Stage{stage}, Programs: j.Programs, Dir: own, Progress: prefixed{os.Stdout}, Multi: j.Modes[0].Multi,
		})
		if err != nil {
			o.Error = err.Error()
			break
		}
		o.Results, o.Error = append(o.Results, results...), ""
	}
	return write(outcomeFile(dir), o)
}

func write(path string, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return errors.Join(errors.New("hand over "+filepath.Base(path)), err)
	}
	return nil
}

// prefixed marks each line, which comes in one piece.
type prefixed struct{ to io.Writer }

// Write implements io.Writer.
func (p prefixed) Write(line []byte) (int, error) {
	if _, err := fmt.Fprintf(p.to, "%s%s", said, line); err != nil {
		return 0, fmt.Errorf("tell progress: %w", err)
	}
	return len(line), nil
}
