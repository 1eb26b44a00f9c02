package contest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/test/bench/site"
)

// process is a running contestant. The kernel kills it when this process dies.
type process struct {
	cmd   *exec.Cmd
	group *group
	done  chan struct{}
	// log is where all its output is.
	log string
}

// command says what to start.
type command struct {
	site *site.Site
	// dir takes the log, which is named after the program.
	dir  string
	argv []string
	env  []string
	// line is called with each line of output; nil is nobody.
	line func(string)
}

// start returns when the process exists. It runs on the site's node, in a control group of its own.
func start(c command) (*process, error) {
	name := filepath.Base(c.argv[0])
	g, err := newGroup()
	if err != nil {
		return nil, err
	}
	p := &process{group: g, done: make(chan struct{}), log: filepath.Join(c.dir, name+".log")}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), g.remove())
	}
	join := []string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, g.members()}
	argv := append(append(c.site.Enter(), join...), c.argv...)
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = append(os.Environ(), c.env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), log.Close(), g.remove())
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the death signal is bound to the thread that starts the child
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer log.Close()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			copyLines(out, log, c.line)
			_ = p.cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), g.remove())
	}
	return p, nil
}

func copyLines(from io.Reader, to io.Writer, line func(string)) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line != nil {
			line(lines.Text())
		}
		fmt.Fprintln(to, lines.Text())
	}
}

// stop kills the process with all that it has started.
func (p *process) stop() error {
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop process: %w", err)
	}
	<-p.done
	return p.group.remove()
}

// ended describes the end of a process that should run.
func (p *process) ended() error {
	const tail = 2000
	text, err := os.ReadFile(p.log)
	return errors.Join(fmt.Errorf("the process ended; the end of its log:\n%s", text[max(0, len(text)-tail):]), err)
}

// memory is what a process holds, in bytes.
type memory struct {
	// RSS and PSS are of the process itself, Peak is its largest RSS ever.
	RSS, PSS, Peak int64
	// Kernel is what the kernel holds on behalf of the process and its children: slab, page tables, rules.
	Kernel int64
}

func (p *process) memory() (memory, error) {
	dir := filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid))
	var m memory
	for _, f := range []struct {
		file, field string
		to          *int64
	}{
		{"smaps_rollup", "Rss", &m.RSS}, {"smaps_rollup", "Pss", &m.PSS}, {"status", "VmHWM", &m.Peak},
	} {
		text, err := os.ReadFile(filepath.Join(dir, f.file))
		if err != nil {
			return m, fmt.Errorf("read memory: %w", err)
		}
		if *f.to, err = kilobytes(string(text), f.field); err != nil {
			return m, fmt.Errorf("read memory: %s: %w", f.file, err)
		}
	}
	var err error
	m.Kernel, err = p.group.kernel()
	return m, err
}

// kilobytes finds a line such as "Rss:   123 kB" and returns bytes.
func kilobytes(text, field string) (int64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, field+":")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("field %s: %w", field, err)
		}
		return n << 10, nil
	}
	return 0, fmt.Errorf("field %s is missing", field)
}
