package rules

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository gives the root folder of the repository, which holds go.work.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("find repository: no go.work in any parent folder")
		}
		dir = parent
	}
}

func report(t *testing.T, findings []Finding) {
	t.Helper()
	for _, finding := range findings {
		t.Errorf("%v", finding)
	}
}

func TestRepositorySources(t *testing.T) {
	all, err := Sources(os.DirFS(repository(t)))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("%d Go files found, which cannot be all", len(all))
	}
	for name, rule := range map[string]func([]Source) []Finding{
		"Edges":           AllowedEdges().Check,
		"FileLength":      FileLength,
		"PackageNames":    PackageNames,
		"PackageComments": PackageComments,
		"LeftOvers":       LeftOvers,
		"Pure":            Pure,
	} {
		t.Run(name, func(t *testing.T) { report(t, rule(all)) })
	}
}

func TestRepositoryDependencies(t *testing.T) {
	agent := dependencies(t, "agent")
	report(t, Dependencies("agent", agent, []string{"k8s.io", "sigs.k8s.io", Module + "controller", Module + "test"}))
	report(t, Dependencies("controller", dependencies(t, "controller"), []string{Module + "agent", Module + "test"}))
	// The last three are what grpc itself needs.
	accepted := []string{Module + "proto", "google.golang.org/protobuf", "google.golang.org/grpc", "google.golang.org/genproto", "golang.org/x"}
	for _, name := range Foreign(dependencies(t, "proto"), accepted) {
		t.Errorf("proto: must not depend on %s: only the standard library, protobuf and grpc", name)
	}
}

// dependencies lists the import paths of all packages that a module's packages are built from, tests aside.
func dependencies(t *testing.T, module string) []string {
	t.Helper()
	var stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...")
	command.Dir = filepath.Join(repository(t), module)
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("list dependencies of %s: %v\n%s", module, err, stderr.String())
	}
	packages := strings.Fields(string(output))
	if len(packages) < 10 {
		t.Fatalf("%s has %d dependencies, which cannot be all", module, len(packages))
	}
	return packages
}

func TestRepositoryDocuments(t *testing.T) {
	root := os.DirFS(repository(t))
	targets, undocumented, err := Targets(root)
	if err != nil {
		t.Fatal(err)
	}
	report(t, undocumented)
	report(t, MissingTargets(targets))
	changes, err := Changelog(root)
	if err != nil {
		t.Fatal(err)
	}
	report(t, changes)

	documents, err := Documents(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) == 0 {
		t.Fatal("no documents found")
	}
	for _, document := range documents {
		findings, err := DocumentPaths(root, document, targets)
		if err != nil {
			t.Fatal(err)
		}
		report(t, findings)
	}
}

// TestHelp runs the target that people see first: it lists every other one.
func TestHelp(t *testing.T) {
	root := repository(t)
	targets, _, err := Targets(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "make", "--silent", "--no-print-directory", "help")
	command.Dir = root
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("make help: %v\n%s", err, output)
	}
	for _, target := range targets {
		if !strings.Contains(string(output), fmt.Sprintf("\n  %s ", target)) {
			t.Errorf("make help does not list %s:\n%s", target, output)
		}
	}
}

// TestEntryPoint holds CI to what people run.
func TestEntryPoint(t *testing.T) {
	root := os.DirFS(repository(t))
	info, err := fs.Stat(root, ".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode()&0o111 == 0 {
		t.Error(".ci/run is not executable: chmod +x")
	}
	text, err := fs.ReadFile(root, ".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "make lint test") {
		t.Error(".ci/run does not run make lint test")
	}
}
