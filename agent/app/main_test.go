package app

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// Environment variables by which tests run this binary again: as the command itself, and as a test in a network namespace.
const (
	asCommand   = "FAIRLEAD_TEST_COMMAND"
	inNamespace = "FAIRLEAD_TEST_NAMESPACE"
)

func TestMain(m *testing.M) {
	if args, ok := os.LookupEnv(asCommand); ok {
		os.Exit(Command{Version: "test", Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}.Run(context.Background(), strings.Fields(args)))
	}
	goleak.VerifyTestMain(m)
}

// again prepares another run of this binary.
func again(t *testing.T, environment string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	c.Env = append(os.Environ(), environment)
	c.Dir = "/"
	return c
}

// namespaced runs the calling test again in a network namespace of its own, with all its threads, and reports whether this
// is that run.
func namespaced(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return true
	}
	c := again(t, inNamespace+"=1", "-test.run=^"+t.Name()+"$", "-test.v")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("in a network namespace (needs root): %v\n%s", err, out)
	}
	return false
}
