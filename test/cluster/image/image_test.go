package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteHoldsTheFilesAndTheirDigest(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte("#!program"), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := Spec{Name: "localhost/a:b", Files: map[string]string{"/usr/bin/program": source}, Entrypoint: []string{"/usr/bin/program"}}
	first, second := filepath.Join(dir, "1.tar"), filepath.Join(dir, "2.tar")
	for _, archive := range []string{first, second} {
		if err := Write(archive, spec); err != nil {
			t.Fatal(err)
		}
	}
	one, two := read(t, first), read(t, second)
	for name := range one {
		if !bytes.Equal(one[name], two[name]) {
			t.Errorf("%s differs between two runs on the same input", name)
		}
	}
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := json.Unmarshal(one["config.json"], &config); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("sha256:%x", sha256.Sum256(one["layer.tar"])); len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != want {
		t.Errorf("diff_ids = %v, want [%s]", config.RootFS.DiffIDs, want)
	}
	layer := entries(t, one["layer.tar"])
	if got := string(layer["usr/bin/program"]); got != "#!program" {
		t.Errorf("layer holds %q, want the program", got)
	}
	for _, folder := range []string{"tmp/", "usr/", "usr/bin/"} {
		if _, found := layer[folder]; !found {
			t.Errorf("layer lacks folder %s", folder)
		}
	}
}

func TestWriteNamesAMissingFile(t *testing.T) {
	err := Write(filepath.Join(t.TempDir(), "a.tar"), Spec{Name: "localhost/a:b", Files: map[string]string{"/a": "/nowhere/a"}})
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("/nowhere/a")) {
		t.Errorf("error = %v, want one that names /nowhere/a", err)
	}
}

func read(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	return entries(t, content)
}

func entries(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if found[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}
