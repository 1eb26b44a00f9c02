package scenario

import (
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/scenario/script"
)

// testScripts performs every file of testdata, as it is written and in all the ways that must end in the same tables; each
// time everything is deleted afterwards, and nothing may be left.
func testScripts(t *testing.T, b *bed) {
	for name, s := range readScripts(t) {
		t.Run(name, func(t *testing.T) {
			for i, v := range s.Variants() {
				t.Run(v.Name, func(t *testing.T) {
					b.perform(t, v.Script, func() {})
					b.clear(t, s, i%2 == 1)
				})
			}
			t.Run("reconnecting", func(t *testing.T) {
				b.perform(t, s, b.reconnect)
				b.clear(t, s, true)
			})
		})
	}
}

// readScripts yields the scenarios of testdata by name, in order.
func readScripts(t *testing.T) iter.Seq2[string, *script.Script] {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in testdata: %v", err)
	}
	return func(yield func(string, *script.Script) bool) {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := script.Parse(string(text))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if !yield(strings.TrimSuffix(filepath.Base(file), ".txt"), s) {
				return
			}
		}
	}
}

// reconnect ends all streams; each follower comes back with what it holds.
func (b *bed) reconnect() {
	for _, f := range b.followers {
		f.Reconnect()
	}
}
