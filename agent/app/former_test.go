package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/agent/internal/hostinfo"
)

// TestFormerSysctls: a clean-up gives back what was there before the first agent, unless somebody has changed it since.
func TestFormerSysctls(t *testing.T) {
	dir, sys := t.TempDir(), hostinfo.ProcSys{Root: t.TempDir()}
	value := func(name, text string) string {
		t.Helper()
		path := filepath.Join(sys.Root, name)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		now, err := sys.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	agentSets := func(settings ...hostinfo.Setting) {
		t.Helper()
		changed, err := hostinfo.Ensure(sys, settings)
		if err != nil {
			t.Fatal(err)
		}
		if err := rememberFormer(dir, changed); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"twice", "foreign", "right"} {
		value(name, "1")
	}
	agentSets(hostinfo.Setting{Name: "twice", Value: "2"}, hostinfo.Setting{Name: "foreign", Value: "2"}, hostinfo.Setting{Name: "right", Value: "1"})
	agentSets(hostinfo.Setting{Name: "twice", Value: "3"})
	value("foreign", "9")
	for range 2 { // the second time there is nothing to do
		if err := giveBackFormer(dir, sys); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"twice": "1", "foreign": "9", "right": "1"} {
			if got := value(name, ""); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		value("twice", "1")
	}
	if _, err := os.Stat(filepath.Join(dir, formerFile)); !os.IsNotExist(err) {
		t.Errorf("the file is still there (%v)", err)
	}
	if err := rememberFormer("", []hostinfo.Setting{{Name: "twice"}}); err != nil {
		t.Errorf("without a folder: %v", err)
	}
}
