// Package images holds what test/images.sh counts on: the binaries in the images depend on the commit, and on nothing of the
// place and the moment in which they are built.
//
// Input: the Dockerfiles, whose own command lines are run. Output: the same bytes twice.
package images

import (
	"crypto/sha256"
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
			from := root // the second copy is one of the first: somebody may be at work in the repository
			for _, folder := range []string{"a", "another/folder"} {
				dir := filepath.Join(t.TempDir(), folder)
				for _, m := range []string{"proto", module} {
					if err := os.CopyFS(filepath.Join(dir, m), os.DirFS(filepath.Join(from, m))); err != nil {
						t.Fatal(err)
					}
				}
				sums = append(sums, build(t, filepath.Join(dir, module), command, "fairlead-"+module))
				from = dir
			}
			if sums[0] != sums[1] {
				t.Errorf("two builds of fairlead-%s give %v", module, sums)
			}
		})
	}
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
	binary, err := os.ReadFile(filepath.Join(out, name))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(binary))
}
