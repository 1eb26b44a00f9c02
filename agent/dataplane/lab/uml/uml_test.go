package uml

import (
	"os"
	"strings"
	"testing"
)

// TestEnter holds that a test really runs in another kernel, which can do what this one is there for.
func TestEnter(t *testing.T) {
	if !Enter(t) {
		return
	}
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
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		t.Error(err)
	}
}
