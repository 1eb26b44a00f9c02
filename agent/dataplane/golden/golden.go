// Package golden compares what a backend's test made with a file that people have read and accepted.
//
// Input are a name and bytes, the file is testdata/NAME.golden beside the test; output is a failed test with what it got.
// The tests have a flag -update by which the files are written anew, for people to read what is different. Its neighbours are
// the tests of the backends' plans.
package golden

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Compare fails the test where got differs from the file of that name; update writes it first.
func Compare(t testing.TB, name string, got []byte, update bool) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: go test -update writes it", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("this differs from %s; go test -update accepts it:\n%s", path, got)
	}
}
