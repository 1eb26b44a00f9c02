package binaries

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestEnsureBuildsOnceForAllWhoAsk uses a module of its own: what matters is that equal
// pins share one executable, also between processes that ask at once, and other pins
// do not.
func TestEnsureBuildsOnceForAllWhoAsk(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root := t.TempDir()
	module := writeModule(t, root, "one")
	one := tool{name: "hello", module: "hello", pkg: "."}
	var said record
	var paths [4]string
	var asking sync.WaitGroup
	for i := range paths {
		asking.Go(func() {
			path, err := one.ensure(t.Context(), root, &said)
			if err != nil {
				t.Error(err)
			}
			paths[i] = path
		})
	}
	asking.Wait()
	if got := strings.Count(said.text(), "built hello"); got != 1 {
		t.Errorf("%d builds, want 1:\n%s", got, said.text())
	}
	if paths[0] != paths[3] || run(t, paths[0]) != "one" {
		t.Errorf("paths = %v, the first says %q", paths, run(t, paths[0]))
	}

	writeModule(t, root, "two")
	second, err := one.ensure(t.Context(), root, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if second == paths[0] || run(t, second) != "two" || run(t, paths[0]) != "one" {
		t.Errorf("another source in %s gave %s, which says %q", module, second, run(t, second))
	}
}

func TestAFailedBuildLeavesNoExecutable(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	root := t.TempDir()
	module := writeModule(t, root, "one")
	if err := os.WriteFile(filepath.Join(module, "broken.go"), []byte("package main\nfunc {"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		path, err := tool{name: "hello", module: "hello", pkg: "."}.ensure(t.Context(), root, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "broken.go") {
			t.Errorf("ensure = %q, %v: want the compiler's words", path, err)
		}
	}
}

func TestRootIsAboveThisPackage(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools() {
		if _, err := os.Stat(filepath.Join(root, "test", "tools", tool.module, "go.sum")); err != nil {
			t.Errorf("%s: %v", tool.name, err)
		}
	}
	t.Chdir(t.TempDir())
	if root, err := Root(); err == nil {
		t.Errorf("outside the repository the root is %s", root)
	}
}

// TestVersionIsThePinnedOne compares the stamp with the module that it is put on.
func TestVersionIsThePinnedOne(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "test", "tools", "kubernetes", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mod), "\tk8s.io/kubernetes "+KubernetesVersion+" ") {
		t.Errorf("test/tools/kubernetes/go.mod does not require %s", KubernetesVersion)
	}
}

func writeModule(t *testing.T, root, word string) string {
	t.Helper()
	dir := filepath.Join(root, "test", "tools", "hello")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"go.mod":  "module hello\n\ngo 1.26.0\n",
		"go.sum":  "",
		"main.go": "package main\n\nfunc main() { print(\"" + word + "\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func run(t *testing.T, path string) string {
	t.Helper()
	output, err := exec.CommandContext(context.WithoutCancel(t.Context()), path).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}

// record is a writer for several goroutines.
type record struct {
	mu   sync.Mutex // guards said
	said strings.Builder
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.Write(p)
}

func (r *record) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.String()
}
