package footprint

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLedgerSurvivesItsProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	first := open(t, path)
	self, err := Identify("self", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []Footprint{
		{Namespaces: []string{"b", "a"}},
		{Namespaces: []string{"a"}, Processes: []Process{self}},
		{Processes: []Process{{Name: "gone", PID: os.Getpid(), Start: self.Start + 1}}},
	} {
		if err := first.Record(more); err != nil {
			t.Fatal(err)
		}
	}
	held := open(t, path).Held()
	if want := []string{"a", "b"}; !slices.Equal(held.Namespaces, want) {
		t.Errorf("namespaces = %v, want %v", held.Namespaces, want)
	}
	if want := []Process{self}; !slices.Equal(held.Processes, want) {
		t.Errorf("processes = %v, want %v: only the one whose start time matches lives", held.Processes, want)
	}
}

func TestOpenRefusesAnUnreadableFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error = %v, want one that names %s", err, path)
	}
}

func TestKillSparesAProcessThatTookTheID(t *testing.T) {
	child := sleeper(t)
	p, err := Identify("sleep", child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := Process{Name: "sleep", PID: p.PID, Start: p.Start - 1}
	if err := other.Kill(); err != nil {
		t.Fatal(err)
	}
	if !p.Alive() {
		t.Fatal("a process with another start time was killed")
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // reports the signal
	if p.Alive() {
		t.Error("the process lives after Kill")
	}
	if err := p.Kill(); err != nil {
		t.Errorf("second Kill: %v", err)
	}
}

func TestRemoveFindsAProcessByItsNamespace(t *testing.T) {
	const name = "flfoot-test"
	dir := t.TempDir()
	ledger := open(t, filepath.Join(dir, "state.json"))
	data := filepath.Join(dir, "data")
	if err := ledger.Record(Footprint{Namespaces: []string{name, "flfoot-never-made"}, Paths: []string{data}, Links: []string{"flfoot-never"}, Cgroups: []string{"/sys/fs/cgroup/flfoot-never"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(data, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), "ip", "netns", "add", name); err != nil {
		t.Fatal(err)
	}
	// The process is recorded nowhere, as if the recorder had been killed too early.
	child := start(t, exec.Command("nsenter", "--net="+NamespacePath(name), "sh", "-c", "echo started; exec sleep 1000"))
	for range 2 {
		if err := ledger.Remove(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	_ = child.Wait() // reports the signal
	for _, path := range []string{NamespacePath(name), data, filepath.Join(dir, "state.json")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	if child.ProcessState.Success() {
		t.Error("the process in the namespace ended by itself")
	}
}

func open(t *testing.T, path string) *Ledger {
	t.Helper()
	ledger, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return ledger
}

func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	return start(t, exec.Command("sh", "-c", "echo started; exec sleep 1000"))
}

// start runs a command that says one line once it is where it should be.
func start(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd
}
