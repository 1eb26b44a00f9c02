// Package images holds what test/images.sh promises: binaries and images depend on the commit, and on nothing of the place
// and the moment in which they are built.
//
// Input: the Dockerfiles, whose own command lines are run, and the script. Output: the same bytes twice.
package images

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/cluster/binaries"
)

// TestBinariesAreReproducible builds each binary as its Dockerfile does, in two folders.
func TestBinariesAreReproducible(t *testing.T) {
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"controller", "agent"} {
		t.Run(module, func(t *testing.T) {
			dockerfile, err := os.ReadFile(filepath.Join(root, "Dockerfile."+module))
			if err != nil {
				t.Fatal(err)
			}
			command := buildCommand(t, string(dockerfile))
			var sums []string
			for _, dir := range copies(t, root, "proto", module) {
				sums = append(sums, build(t, filepath.Join(dir, module), command, "fairlead-"+module))
			}
			if sums[0] != sums[1] {
				t.Errorf("two builds of fairlead-%s give %v", module, sums)
			}
		})
	}
}

// TestImagesAreReproducible builds each image in two folders, with the builder that needs no engine and no registry.
func TestImagesAreReproducible(t *testing.T) {
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(root, "test", "images.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"controller", "agent"} {
		t.Run(module, func(t *testing.T) {
			var sums []string
			for _, dir := range copies(t, root, "proto", module, "Dockerfile."+module, ".dockerignore") {
				at := filepath.Join(dir, "test", "images.sh")
				if err := errors.Join(os.Mkdir(filepath.Dir(at), 0o755), os.WriteFile(at, script, 0o755)); err != nil {
					t.Fatal(err)
				}
				sums = append(sums, archive(t, at, module))
			}
			if sums[0] != sums[1] {
				t.Errorf("two builds of the image fairlead-%s give %v", module, sums)
			}
		})
	}
}

// archive has the script build an image and returns the hash of its archive.
func archive(t *testing.T, script, module string) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), script, "v0.0.0", module)
	cmd.Env = append(os.Environ(), "ENGINE=buildah", "OUT="+out, "TAG=reproducible", "SOURCE_DATE_EPOCH=1600000000")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, output)
	}
	return sum(t, filepath.Join(out, "fairlead-"+module+".tar"))
}

// copies returns two folders with the same files and folders of the repository. The second is a copy of the first: somebody
// may be at work in the repository.
func copies(t *testing.T, root string, names ...string) []string {
	t.Helper()
	dirs := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "another", "folder")}
	for i, from := range []string{root, dirs[0]} {
		if err := os.MkdirAll(dirs[i], 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := copyTo(filepath.Join(dirs[i], name), filepath.Join(from, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dirs
}

func copyTo(to, from string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm())
}

// buildCommand returns what a Dockerfile runs to build the binary.
func buildCommand(t *testing.T, dockerfile string) string {
	t.Helper()
	joined := strings.ReplaceAll(dockerfile, "\\\n", " ")
	match := regexp.MustCompile(`(?m)^RUN (go build .*)$`).FindStringSubmatch(joined)
	if match == nil {
		t.Fatalf("no RUN go build in\n%s", dockerfile)
	}
	return match[1]
}

// build runs the command in a folder and returns the hash of the binary.
func build(t *testing.T, dir, command, name string) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "/out/", out+"/"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "VERSION=v0.0.0")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	return sum(t, filepath.Join(out, name))
}

func sum(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(content))
}
