package sheet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMerge: a part takes its place whatever came first, and leaves the others as they are.
func TestMerge(t *testing.T) {
	agent, ipvs, fanout := Agent+"\n\nours\n\n## table\n", IPVS+"\n\nhere\n", Fanout+"\n\nmany\n"
	whole := agent + "\n" + ipvs + "\n" + fanout
	for name, order := range map[string][]string{
		"in order": {agent, ipvs, fanout}, "backwards": {fanout, ipvs, agent}, "again": {agent, IPVS + "\nold\n\n## old\n", fanout, ipvs, agent},
	} {
		document := "text of nobody\n"
		for _, part := range order {
			document = Merge(document, part)
		}
		if diff := cmp.Diff(whole, document); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestKeep(t *testing.T) {
	root := t.TempDir()
	if err := Keep(root, Agent+"\n"); err == nil {
		t.Error("written without a folder docs")
	}
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{Fanout + "\n", Agent + "\n"} {
		if err := Keep(root, part); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(root, "docs", "benchmarks.md")); string(got) != Agent+"\n\n"+Fanout+"\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
