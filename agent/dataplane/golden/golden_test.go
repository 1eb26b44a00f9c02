package golden

import (
	"os"
	"path/filepath"
	"testing"
)

// recorder notes that a test would have failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestCompare(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("testdata", 0o700); err != nil {
		t.Fatal(err)
	}
	Compare(t, "a", []byte("one"), true)
	Compare(t, "a", []byte("one"), false)
	r := &recorder{TB: t}
	if Compare(r, "a", []byte("two"), false); !r.failed {
		t.Error("a difference was not noticed")
	}
	if text, err := os.ReadFile(filepath.Join("testdata", "a.golden")); err != nil || string(text) != "one" {
		t.Errorf("the file says %q, error %v", text, err)
	}
}
