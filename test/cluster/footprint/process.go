package footprint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Identify returns the living process pid as something that can be found again.
func Identify(name string, pid int) (Process, error) {
	stat, err := readStat(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{Name: name, PID: pid, Start: stat.start}, nil
}

// Alive says whether the very process still runs. A zombie does not.
func (p Process) Alive() bool {
	stat, err := readStat(p.PID)
	return err == nil && stat.start == p.Start && stat.state != 'Z' && stat.state != 'X'
}

// Kill ends the process at once. One that is gone already is no error.
func (p Process) Kill() error { return p.Signal(unix.SIGKILL) }

// Signal sends the process a signal. One that is gone already is no error.
func (p Process) Signal(signal unix.Signal) error {
	// The descriptor pins the process, so that the id cannot change its owner between
	// the comparison of the start time and the signal.
	handle, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return ignoreGone(err, "open", p)
	}
	defer unix.Close(handle)
	if !p.Alive() {
		return nil
	}
	return ignoreGone(unix.PidfdSendSignal(handle, signal, nil, 0), "signal", p)
}

func ignoreGone(err error, verb string, p Process) error {
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("%s process %d (%s): %w", verb, p.PID, p.Name, err)
}

type stat struct {
	state byte
	start uint64
}

// readStat reads /proc/PID/stat; see proc_pid_stat(5). The second field, the name in
// parentheses, may itself hold spaces and parentheses.
func readStat(pid int) (stat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	const state, start = 0, 19 // fields 3 and 22, counted from after the name
	if len(fields) <= start {
		return stat{}, fmt.Errorf("read process %d: %d fields in its stat file", pid, len(fields))
	}
	ticks, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("read start time of process %d: %w", pid, err)
	}
	return stat{state: fields[state][0], start: ticks}, nil
}
