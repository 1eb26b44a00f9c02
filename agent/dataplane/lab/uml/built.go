package uml

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

//go:embed build.sh
var buildScript []byte

//go:embed kernel.config
var kernelConfig []byte

// Built returns the path of a kernel that can do all modes in both families, which Debian's user-mode-linux cannot: it lacks
// nf_tables for IPv4 and IPv6. It is built from Debian's package linux-source once, in some minutes, and kept in the user's
// cache folder. Processes that ask at the same time wait for one of them.
func Built(ctx context.Context) (path string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w", err)
	}
	sum := sha256.Sum256(bytes.Join([][]byte{buildScript, kernelConfig}, nil))
	dir := filepath.Join(cache, "fairlead", "uml-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	lock, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		return "", fmt.Errorf("open lock: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	path = filepath.Join(dir, "linux")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err //nolint:wrapcheck // it names the file
	}
	script, config := filepath.Join(dir, "build.sh"), filepath.Join(dir, "kernel.config")
	if err := errors.Join(os.WriteFile(script, buildScript, 0o600), os.WriteFile(config, kernelConfig, 0o600)); err != nil {
		return "", fmt.Errorf("write build script: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "sh", script, config, path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build kernel: %w: %s", err, bytes.TrimSpace(out))
	}
	return path, nil
}
