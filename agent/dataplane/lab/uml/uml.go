// Package uml runs a test inside a Linux kernel of its own: user-mode-linux, a kernel that runs as a process and boots in
// three seconds. It brings what the machine's kernel may lack, such as IPVS and SCTP, and whatever a test does to it is
// gone with the process.
//
// Input is the running test binary, which boots again as the only process of that kernel; output is its verdict and what
// it printed. The root is the machine's file system, read-only; /run is a file system in memory. It needs Debian's package
// user-mode-linux, and root. Its neighbours are the tests of internal/ipvs.
package uml

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inside is set in the environment of the test binary in the kernel.
const inside = "FAIRLEAD_UML"

// lifetime is the most that a kernel runs, unless more is asked for; tests that hang end with the kernel.
const lifetime = 20 * time.Minute

// Enter returns true inside the kernel: the test goes on there. Outside it boots the kernel, runs the calling test (it must
// not be a subtest) in it, fails it if it failed there, and returns false. Subtests that -run asks for are passed on.
func Enter(t *testing.T) bool {
	t.Helper()
	return EnterFor(t, lifetime)
}

// EnterFor is Enter with another lifetime of the kernel.
func EnterFor(t *testing.T, lifetime time.Duration) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	output, err := boot(t, lifetime)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	t.Logf("inside the kernel:\n%s", output)
	return false
}

// boot runs the calling test in a kernel, and returns what it printed. An error says that it failed, or never ended.
func boot(t *testing.T, lifetime time.Duration) (string, error) {
	script, err := testScript(t, lifetime)
	if err != nil {
		return "", err
	}
	dir := t.TempDir()
	argv, err := Kernel{Dir: dir, Megabytes: 1024, Init: script}.Argv()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(t.Context(), lifetime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &output, &output, dir
	// The processes of the kernel are processes of the machine; they end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	_ = cmd.Run() // the kernel's exit code says nothing about the test
	text := strings.ReplaceAll(output.String(), "\r", "")
	verdict := regexp.MustCompile(`(?m)^test ended: (\d+)$`).FindStringSubmatch(text)
	switch {
	case verdict == nil && ctx.Err() != nil:
		return text, fmt.Errorf("run in %s: %w", program, ctx.Err())
	case verdict == nil:
		return text, fmt.Errorf("run in %s: the kernel stopped before the test ended", program)
	case verdict[1] != "0":
		return text, fmt.Errorf("run in %s: exit code %s", program, verdict[1])
	}
	return text, nil
}

// testScript runs the calling test in the kernel, and has it say where it hangs before the kernel ends.
func testScript(t *testing.T, lifetime time.Duration) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find test's folder: %w", err)
	}
	binary, err := testBinary(t)
	if err != nil {
		return "", err
	}
	run := "^" + t.Name() + "$"
	if asked := flag.Lookup("test.run").Value.String(); strings.Contains(asked, "/") {
		run = asked
	}
	for _, word := range []string{dir, binary, run} {
		if strings.Contains(word, "'") {
			return "", fmt.Errorf("run %s: no quotes, please", word)
		}
	}
	return fmt.Sprintf("cd '%s' && %s=1 '%s' -test.v '-test.run=%s' -test.timeout=%v\necho \"test ended: $?\"", dir, inside, binary, run, lifetime*9/10), nil
}

// testBinary returns the path of this test binary, or of one built without the race detector.
func testBinary(t *testing.T) (string, error) {
	if !raceDetector {
		path, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find test binary: %w", err)
		}
		return path, nil
	}
	path := filepath.Join(t.TempDir(), "plain.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build without the race detector: %w: %s", err, out)
	}
	return path, nil
}
