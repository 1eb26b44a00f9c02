// Package meter reads what processes and connections have cost: processor time, memory, and bytes that TCP delivered.
//
// Input are process numbers and connections of this machine; output are numbers as the kernel counts them. Its neighbours
// are packages swarm and watchers, for connections, and measure, for processes.
package meter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Received is how many bytes TCP has delivered on a connection (tcp_info); 0 on one that is nil or gone.
func Received(conn *net.TCPConn) int64 {
	if conn == nil {
		return 0
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	var n int64
	if err := raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int64(info.Bytes_received) //nolint:gosec // far from overflow
		}
	}); err != nil {
		return 0
	}
	return n
}

// CPU is the processor time of a process's living threads, as the scheduler counts it, in nanoseconds. Threads of a Go
// program do not end.
func CPU(pid int) (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("read processor time of %d: no such process (%w)", pid, err)
	}
	var sum time.Duration
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		on, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(on, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

// Resident is the memory of a process, in bytes.
func Resident(pid int) (int64, error) { return memory(pid, "VmRSS:") }

// Peak is the most that Resident ever was.
func Peak(pid int) (int64, error) { return memory(pid, "VmHWM:") }

func memory(pid int, field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == field {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("read memory of %d: no %s", pid, field)
}

// ReceivedFrom is how many bytes TCP has delivered to a process on its living connections to a port.
func ReceivedFrom(ctx context.Context, pid int, port uint16) (int64, error) {
	out, err := exec.CommandContext(ctx, "ss", "-tinpHO", "dport", "=", ":"+strconv.Itoa(int(port))).Output()
	if err != nil {
		return 0, fmt.Errorf("list connections: %w", err)
	}
	bytes := regexp.MustCompile(`bytes_received:(\d+)`)
	var sum int64
	for line := range strings.Lines(string(out)) {
		if m := bytes.FindStringSubmatch(line); m != nil && strings.Contains(line, fmt.Sprintf("pid=%d,", pid)) {
			n, err := strconv.ParseInt(m[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("list connections: %w", err)
			}
			sum += n
		}
	}
	return sum, nil
}

// Find returns the number of the process whose executable has a name and whose arguments contain a text.
func Find(name, argument string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		program, arguments, _ := strings.Cut(string(text), "\x00")
		if filepath.Base(program) == name && strings.Contains(arguments, argument) {
			return strconv.Atoi(filepath.Base(filepath.Dir(file)))
		}
	}
	return 0, fmt.Errorf("find %s: no such process", name)
}
