// Package footprint remembers what a test cluster leaves on the machine, and removes
// it, also after the process that made it was killed at any point.
//
// Input: names, written down before the things themselves are made. Output: a state
// file, and later nothing. A process is found three ways: by the process id and start
// time that were written down; by membership in a control group of ours, which every
// process joins before it runs its program; by the network namespace it lives in.
// Package cluster writes; `cluster down` removes.
package footprint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
)

// Footprint is all that a cluster has on a machine. Every name belongs to the cluster
// alone, so that removal needs no other knowledge.
type Footprint struct {
	Processes  []Process `json:"processes"`
	Namespaces []string  `json:"namespaces"` // names of network namespaces, as in `ip netns`
	Links      []string  `json:"links"`      // network devices in the host's namespace
	Cgroups    []string  `json:"cgroups"`    // absolute folders, each the root of a tree
	Paths      []string  `json:"paths"`      // files and folders, removed with their content
}

// Process names a process for good: a process id is used again, a process id with
// its start time is not.
type Process struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, field 22 of /proc/PID/stat
}

// Ledger is a footprint on disk. Use it from any number of goroutines.
type Ledger struct {
	path string

	mu   sync.Mutex // guards held, and the order of writes to path
	held Footprint
}

// Open reads the footprint at path; a missing file is an empty footprint.
func Open(path string) (*Ledger, error) {
	ledger := &Ledger{path: path}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ledger, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state file: %w", err)
	}
	if err := json.Unmarshal(content, &ledger.held); err != nil {
		return nil, fmt.Errorf("parse state file %s: %w", path, err)
	}
	return ledger, nil
}

// Record writes down what is about to be made. When it returns, the file holds it.
func (l *Ledger) Record(more Footprint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := Footprint{
		Processes:  slices.Concat(l.held.Processes, more.Processes),
		Namespaces: merge(l.held.Namespaces, more.Namespaces),
		Links:      merge(l.held.Links, more.Links),
		Cgroups:    merge(l.held.Cgroups, more.Cgroups),
		Paths:      merge(l.held.Paths, more.Paths),
	}
	next.Processes = slices.DeleteFunc(next.Processes, func(p Process) bool { return !p.Alive() })
	if err := write(l.path, next); err != nil {
		return err
	}
	l.held = next
	return nil
}

// Held returns a copy of what was recorded.
func (l *Ledger) Held() Footprint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Footprint{
		Processes:  slices.Clone(l.held.Processes),
		Namespaces: slices.Clone(l.held.Namespaces),
		Links:      slices.Clone(l.held.Links),
		Cgroups:    slices.Clone(l.held.Cgroups),
		Paths:      slices.Clone(l.held.Paths),
	}
}

// Process returns the newest living process that was recorded under name.
func (l *Ledger) Process(name string) (Process, bool) {
	for _, p := range slices.Backward(l.Held().Processes) {
		if p.Name == name && p.Alive() {
			return p, true
		}
	}
	return Process{}, false
}

func merge(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// write replaces the file in one step: a crash leaves the old one or the new one.
func write(path string, content Footprint) error {
	encoded, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state file: %w", err)
	}
	next := path + ".next"
	if err := os.WriteFile(next, append(encoded, '\n'), 0o600); err != nil {
		return fmt.Errorf("write state file: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("replace state file: %w", err)
	}
	return nil
}
