package statedir

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// TestReplace: the file is new or old, private, alone in its folder.
func TestReplace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if _, err := Read(dir, "f", 100); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := Write(dir, "f", text("one")); err != nil {
		t.Fatal(err)
	}
	// What a crash left does not matter, nor does its mode.
	if err := os.WriteFile(filepath.Join(dir, "f.new"), []byte("garbage, and more of it"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, "f", text("two")); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no more")
	if err := Write(dir, "f", func(w io.Writer) error { return errors.Join(text("three")(w), failure) }); !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}
	if got, err := Read(dir, "f", 100); err != nil || string(got) != "two" {
		t.Errorf("%q, %v", got, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "f"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// TestRefused: what is too large, writable by others or no file is not read.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := Write(dir, "f", text("four")); err != nil {
		t.Fatal(err)
	}
	wants := func(want string) {
		t.Helper()
		if _, err := Read(dir, "f", 4); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := Read(dir, "f", 4); err != nil {
		t.Error(err)
	}
	if err := Write(dir, "f", text("5 bytes")); err != nil {
		t.Fatal(err)
	}
	wants("7 bytes: want at most 4")
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	wants("lets others write it: want 0600")
	if err := errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)); err != nil {
		t.Fatal(err)
	}
	wants("too many levels of symbolic links")
	if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	wants("is no regular file")
}

// TestNowhere: a folder that cannot be is an error that names it.
func TestNowhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "g"), "x", text("")); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v", err)
	}
}
