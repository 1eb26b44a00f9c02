package checkpoint

import (
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/internal/statedir"
)

// TestCluster: a table of another cluster is refused; one of before or amid a rotation of the CA is not, nor is one of an unknown cluster.
func TestCluster(t *testing.T) {
	cluster := func(certificates ...string) string {
		var text []byte
		for _, c := range certificates {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(c)})...)
		}
		path := filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadCluster(path)
	}
	unknown := ReadCluster(filepath.Join(t.TempDir(), "none"))
	if unknown != "" || cluster() != "" || cluster("a", "b") != cluster("b", "a", "b") {
		t.Errorf("clusters %q, %q, %q, %q", unknown, cluster(), cluster("a", "b"), cluster("b", "a", "b"))
	}
	for _, c := range []struct {
		name, wrote, reads string
		refused            bool
	}{
		{"the same", cluster("a"), cluster("a"), false},
		{"a rotation begins", cluster("a"), cluster("a", "b"), false},
		{"a rotation ends", cluster("a", "b"), cluster("b"), false},
		{"another one", cluster("a"), cluster("b"), true},
		{"unknown now", cluster("a"), unknown, false},
		{"unknown then", unknown, cluster("a"), false},
	} {
		dir, saved := t.TempDir(), Checkpoint{Node: "n1", Cluster: c.wrote, Revision: 7, Table: parse(t, someTable)}
		if err := statedir.Write(dir, fileName, func(w io.Writer) error { return saved.Encode(w) }); err != nil {
			t.Fatal(err)
		}
		got, _, err := Load(dir, Owner{"n1", c.reads})
		if c.refused != (err != nil) || err != nil && !strings.Contains(err.Error(), "is of another cluster") {
			t.Errorf("%s: error %v", c.name, err)
		}
		if err == nil && got.Cluster != c.wrote {
			t.Errorf("%s: cluster %q, want %q", c.name, got.Cluster, c.wrote)
		}
	}
}
