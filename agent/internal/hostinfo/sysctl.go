package hostinfo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Sysctls reads and writes kernel settings by their path below /proc/sys, such as "net/ipv4/ip_forward" (slashes, since
// names of devices may contain dots). A setting that this kernel lacks is an error that is fs.ErrNotExist.
type Sysctls interface {
	Get(name string) (string, error)
	Set(name, value string) error
}

// ProcSys is the Sysctls of the current network namespace.
type ProcSys struct {
	// Root is where they are mounted: "/proc/sys" outside of tests.
	Root string
}

var _ Sysctls = ProcSys{}

// Get returns the value without the white space around it.
func (p ProcSys) Get(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(p.Root, filepath.FromSlash(name)))
	if err != nil {
		return "", fmt.Errorf("read sysctl: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Set writes a value. It never creates a file.
func (p ProcSys) Set(name, value string) error {
	f, err := os.OpenFile(filepath.Join(p.Root, filepath.FromSlash(name)), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("write sysctl: %w", err)
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write sysctl: %w", err)
	}
	return nil
}

// Setting is a value that a sysctl should have.
type Setting struct {
	Name, Value string
	// Optional settings may be missing in the kernel.
	Optional bool
	// Former is the value that Ensure has found and changed.
	Former string
}

// Ensure gives the settings their values, in order, and returns those that it changed. A setting that cannot be had does
// not keep it from the others; the error joins all of them.
func Ensure(s Sysctls, settings []Setting) (changed []Setting, err error) {
	var errs []error
	for _, want := range settings {
		have, err := s.Get(want.Name)
		if err == nil && have == want.Value {
			continue
		}
		if err == nil {
			err = s.Set(want.Name, want.Value)
		}
		switch {
		case err == nil:
			want.Former = have
			changed = append(changed, want)
		case want.Optional && errors.Is(err, fs.ErrNotExist):
		default:
			errs = append(errs, fmt.Errorf("set sysctl %s to %s: %w", want.Name, want.Value, err))
		}
	}
	return changed, errors.Join(errs...)
}

// Forwarding are the settings without which the kernel forwards nothing to other hosts. Those of IPv6 are left to whoever
// set up its routes: there, forwarding makes the kernel ignore router advertisements, which may be where this host has its
// default route from.
func Forwarding() []Setting {
	return []Setting{{Name: "net/ipv4/ip_forward", Value: "1"}}
}
