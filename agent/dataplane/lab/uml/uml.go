// Package uml runs a test inside a Linux kernel of its own: user-mode-linux, a kernel that runs as a process and boots in
// three seconds or less. It brings what the machine's kernel may lack, such as IPVS and SCTP, and whatever a test does to it
// is gone with the process.
//
// Input is the running test binary, which boots again as the only process of that kernel; output is its verdict and what
// it printed. The root is the machine's file system, read-only; /run is a file system in memory. There are two kernels, both
// 6.1 on Debian 12: that of the package user-mode-linux, which loads modules as a distribution's does, and that of Built, which
// has all modes. It needs root. Its neighbours are the tests of the backends and of package whole.
package uml

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
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

// Enter returns true inside the kernel: the test or benchmark goes on there. Outside it boots the kernel, runs the caller (it
// must not be a subtest) in it, fails it if it failed there, and returns false. Subtests that -run or -bench asks for are
// passed on, as is -benchtime. With -cpuprofile, the profile inside is beside the one outside, its name ending in .uml.
func Enter(tb testing.TB) bool {
	tb.Helper()
	return EnterFor(tb, lifetime)
}

// EnterBeside is Enter for tests whose kernels may run at the same time, each on a CPU of its own (see Pin).
func EnterBeside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) == "" {
		t.Parallel() // not inside, where there is one CPU, and tests may set the environment
	}
	return Enter(t)
}

// EnterFor is Enter with another lifetime of the kernel.
func EnterFor(tb testing.TB, lifetime time.Duration) bool {
	tb.Helper()
	return enter(tb, "", lifetime)
}

// EnterBuilt is Enter with the kernel of Built.
func EnterBuilt(tb testing.TB) bool {
	tb.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	kernel, err := Built(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return enter(tb, kernel, lifetime)
}

func enter(tb testing.TB, kernel string, lifetime time.Duration) bool {
	tb.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	output, err := boot(tb, kernel, lifetime)
	if err != nil {
		tb.Fatalf("%v\n%s", err, output)
	}
	if _, is := tb.(*testing.B); is {
		// Package testing cuts a benchmark's log off, and drops that of one whose parts were asked for.
		_, _ = io.WriteString(os.Stdout, figures(output))
		return false
	}
	tb.Logf("inside the kernel:\n%s", output)
	return false
}

// figures are the lines of a benchmark's output that say what was measured.
func figures(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		if strings.Contains(line, " ns/op") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// boot runs the calling test in a kernel, and returns what it printed. An error says that it failed, or never ended.
func boot(tb testing.TB, kernel string, lifetime time.Duration) (string, error) {
	script, err := testScript(tb, lifetime)
	if err != nil {
		return "", err
	}
	dir := tb.TempDir()
	argv, err := Kernel{Program: kernel, Dir: dir, Megabytes: 1024, Init: script}.Argv()
	if err != nil {
		return "", err
	}
	argv, release, err := Pin(argv)
	if err != nil {
		return "", err
	}
	defer release()
	ctx, cancel := context.WithTimeout(tb.Context(), lifetime)
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
func testScript(tb testing.TB, lifetime time.Duration) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find test's folder: %w", err)
	}
	binary, err := testBinary(tb)
	if err != nil {
		return "", err
	}
	args := append([]string{binary, "-test.v", "-test.timeout=" + (lifetime * 9 / 10).String()}, selection(tb)...)
	mount := ""
	if profile := flag.Lookup("test.cpuprofile").Value.String(); profile != "" {
		if !filepath.IsAbs(profile) {
			profile = filepath.Join(flag.Lookup("test.outputdir").Value.String(), profile)
		}
		args = append(args, "-test.cpuprofile="+profile+".uml")
		mount = filepath.Dir(profile) // in the kernel, a file system that can be written
	}
	for _, word := range append(args, dir, mount) {
		if strings.Contains(word, "'") {
			return "", fmt.Errorf("run %s: no quotes, please", word)
		}
	}
	script := fmt.Sprintf("cd '%s' && %s=1 '%s'\necho \"test ended: $?\"", dir, inside, strings.Join(args, "' '"))
	if mount != "" {
		script = fmt.Sprintf("mount -t hostfs -o '%s' none '%s'\n%s", mount, mount, script)
	}
	return script, nil
}

// selection is how the caller is chosen inside.
func selection(tb testing.TB) []string {
	which := "test.run"
	var args []string
	if _, is := tb.(*testing.B); is {
		which = "test.bench"
		args = []string{"-test.run=^$", "-test.benchtime=" + flag.Lookup("test.benchtime").Value.String()}
	}
	run := "^" + tb.Name() + "$"
	if asked := flag.Lookup(which).Value.String(); strings.Contains(asked, "/") {
		run = asked
	}
	return append(args, "-"+which+"="+run)
}

// testBinary returns the path of this test binary, or of one built without the race detector.
func testBinary(tb testing.TB) (string, error) {
	if !raceDetector {
		path, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find test binary: %w", err)
		}
		return path, nil
	}
	path := filepath.Join(tb.TempDir(), "plain.test")
	if out, err := exec.CommandContext(tb.Context(), "go", "test", "-c", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build without the race detector: %w: %s", err, out)
	}
	return path, nil
}
