package uml

import (
	"os"
	"strings"
	"testing"
)

// TestEnter holds that a test really runs in another kernel, which can do what this one is there for.
func TestEnter(t *testing.T) {
	if Enter(t) {
		look(t, "/proc/net/ip_vs")
	}
}

// TestEnterBuilt holds the same of the kernel that is built.
func TestEnterBuilt(t *testing.T) {
	if EnterBuilt(t) {
		look(t, "/proc/net/ip_vs", "/proc/net/ip_tables_names", "/proc/net/ip6_tables_names", "/proc/net/sctp", "/proc/sys/net/bridge")
	}
}

// look asks whether this kernel is one that runs as a process, and has some files.
func look(t *testing.T, files ...string) {
	version, err := os.ReadFile("/proc/version")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(cpu), "User Mode Linux") {
		t.Errorf("the kernel is %s", version)
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}
