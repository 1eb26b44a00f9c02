package uml

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is the kernel of Debian's package; bootScript is what it starts instead of an init system.
const program = "linux.uml"

//go:embed boot.sh
var bootScript string

// Kernel is one to be started as a process. Its root is the machine's file system, read-only; /run is its own.
type Kernel struct {
	// Program is its path; "" is Debian's, from the package user-mode-linux.
	Program string
	// Dir takes the kernel's files; no two kernels share one.
	Dir string
	// Megabytes is its memory.
	Megabytes int
	// Init is the text of a shell script: what the kernel does, as root, with the modules of IPVS loaded and the loopback device
	// up. Its output is the process's output. The kernel halts when it ends.
	Init string
	// Tap is a network device of kind tap, in the network namespace of the kernel's process, whose other end the kernel has as
	// vec0; "" is none.
	Tap string
}

// Argv writes the script into Dir and returns the command line that starts the kernel. The processes inside are children
// of that process, and end with it. Its exit code says nothing about Init's.
func (k Kernel) Argv() ([]string, error) {
	if strings.ContainsAny(k.Dir, " ,=") {
		return nil, fmt.Errorf("start kernel: folder %q: choose one without blank, comma and equals sign", k.Dir)
	}
	kernel := k.Program
	if kernel == "" {
		var err error
		if kernel, err = exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("find %s: install the package user-mode-linux: %w", program, err)
		}
	}
	script := filepath.Join(k.Dir, "boot.sh")
	text := strings.Replace(bootScript, "@INIT@", k.Init, 1)
	if err := errors.Join(os.WriteFile(script, []byte(text), 0o600), os.Chmod(script, 0o700)); err != nil { //nolint:gosec // it is run
		return nil, fmt.Errorf("write boot script: %w", err)
	}
	argv := []string{
		kernel, fmt.Sprintf("mem=%dM", k.Megabytes), "rootfstype=hostfs", "rootflags=/", "ro", "init=" + script,
		"con=null", "con0=fd:0,fd:1", "quiet", "uml_dir=" + k.Dir + "/",
	}
	if k.Tap != "" {
		argv = append(argv, "vec0:transport=tap,ifname="+k.Tap+",depth=64")
	}
	return argv, nil
}
