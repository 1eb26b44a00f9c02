// Package binaries builds what the test bed runs: the Kubernetes components, etcd
// and CoreDNS from their pinned modules under test/tools, and this repository's own
// commands.
//
// Input: the repository's root. Output: paths of static executables. Those of pinned
// modules are kept in the user's cache folder under a hash of the module's go.mod,
// go.sum, sources and the Go version, so that a second clone builds nothing. Package
// cluster runs what is built here.
package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// KubernetesVersion is the version of the components in test/tools/kubernetes. It is
// stamped into them: clients read the server's version and refuse an empty one.
const KubernetesVersion = "v1.36.3"

// tool is one executable of a pinned module.
type tool struct {
	name    string // of the executable
	module  string // folder below test/tools
	pkg     string // import path of its main package
	ldflags string
	tags    string // of the build; most have none
}

// tools lists the executables in the order in which they are built: the ones that
// share the most packages with the rest come first.
func tools() []tool {
	const stamp = "k8s.io/component-base/version"
	version := fmt.Sprintf("-s -w -X %s.gitVersion=%s -X %s.gitMajor=1 -X %s.gitMinor=36", stamp, KubernetesVersion, stamp, stamp)
	all := []tool{{name: "coredns", module: "coredns", pkg: ".", ldflags: "-s -w"}}
	for _, name := range []string{"kube-apiserver", "kubelet", "kube-controller-manager", "kube-scheduler", "kubectl", "kube-proxy"} {
		all = append(all, tool{name: name, module: "kubernetes", pkg: "k8s.io/kubernetes/cmd/" + name, ldflags: version})
	}
	return append(all, tool{name: "etcd", module: "kubernetes", pkg: "go.etcd.io/etcd/server/v3", ldflags: "-s -w"})
}

// Set tells where each executable is, by name (kube-apiserver, etcd, coredns, …).
type Set map[string]string

// Ensure returns all executables and builds those that the cache lacks, which takes
// some five minutes on two cores. A line per executable goes to progress. Two
// processes that call it at the same time build once: the second waits.
func Ensure(ctx context.Context, root string, progress io.Writer) (Set, error) {
	set := Set{}
	for _, t := range tools() {
		path, err := t.ensure(ctx, root, progress)
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", t.name, err)
		}
		set[t.name] = path
	}
	return set, nil
}

// Oracle returns the executable of test/tools/oracle, which prints kube-proxy's iptables rules, and builds it if the cache
// lacks it, which takes half a minute. It is no part of a Set, since no cluster runs it.
func Oracle(ctx context.Context, root string, progress io.Writer) (string, error) {
	return single(ctx, root, tool{name: "oracle", module: "oracle", pkg: ".", ldflags: "-s -w"}, progress)
}

// Build compiles the main package pkg, seen from folder dir, into a static executable.
// The Go build cache makes a second call cheap.
func Build(ctx context.Context, dir, pkg, out string) error {
	return compilation{dir: dir, pkg: pkg, ldflags: "-s -w", out: out}.run(ctx)
}

// Root returns the repository's root: the nearest folder above the working directory
// that holds the pinned tools.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find working directory: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "tools", "kubernetes", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find repository: no folder above %s holds test/tools/kubernetes: run this inside a clone", start)
		}
	}
}

func (t tool) ensure(ctx context.Context, root string, progress io.Writer) (string, error) {
	dir := filepath.Join(root, "test", "tools", t.module)
	cache, err := cacheFolder(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, t.name)
	if built(path) {
		return path, nil
	}
	unlock, err := lock(filepath.Join(cache, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if built(path) {
		return path, nil
	}
	start := time.Now()
	fmt.Fprintf(progress, "build %-24s (once, kept in %s)\n", t.name, cache)
	// Built aside and renamed: an interrupted build must not look like a finished one.
	partial := path + ".partial"
	build := compilation{dir: dir, pkg: t.pkg, ldflags: t.ldflags, tags: t.tags, out: partial, env: []string{"GOWORK=off"}}
	if err := build.watch(ctx, t.name, progress); err != nil {
		return "", err
	}
	if err := os.Rename(partial, path); err != nil {
		return "", fmt.Errorf("keep executable: %w", err)
	}
	fmt.Fprintf(progress, "built %-24s %.0f s\n", t.name, time.Since(start).Seconds())
	return path, nil
}

func built(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// cacheFolder returns the folder for a module's executables and makes it.
func cacheFolder(module string) (string, error) {
	files, err := filepath.Glob(filepath.Join(module, "*.go"))
	if err != nil {
		return "", fmt.Errorf("list sources of %s: %w", module, err)
	}
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), KubernetesVersion)
	for _, file := range append([]string{filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")}, files...) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("hash module: %w", err)
		}
		fmt.Fprintln(sum, filepath.Base(file), len(content))
		sum.Write(content)
	}
	base, err := os.UserCacheDir() // XDG_CACHE_HOME, or ~/.cache
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w: set HOME or XDG_CACHE_HOME", err)
	}
	dir := filepath.Join(base, "fairlead", "bin", hex.EncodeToString(sum.Sum(nil))[:16])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	return dir, nil
}

// lock takes an exclusive lock that the kernel releases when this process dies.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// compilation is one call of `go build`: package pkg, seen from folder dir, with more
// environment, into the file out. tags may be empty.
type compilation struct {
	dir, pkg, ldflags, tags, out string
	env                          []string
}

// watch runs the compilation and says now and then that it goes on: the first one of
// Kubernetes takes minutes.
func (c compilation) watch(ctx context.Context, name string, progress io.Writer) error {
	done := make(chan error, 1)
	go func() { done <- c.run(ctx) }()
	start := time.Now()
	ticker := time.NewTicker(30 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C:
			fmt.Fprintf(progress, "      %-24s %.0f s so far\n", name, time.Since(start).Seconds())
		}
	}
}

func (c compilation) run(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", c.tags, "-ldflags", c.ldflags, "-o", c.out, c.pkg)
	cmd.Dir = c.dir
	cmd.Env = slices.Concat(os.Environ(), c.env, []string{"CGO_ENABLED=0"})
	// A compiler that outlives this process, killed, would make the folder of its output again after that was removed. The
	// signal comes when the thread ends that started it (prctl(2), PR_SET_PDEATHSIG), so that one must stay.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", c.pkg, err, output)
	}
	return nil
}
