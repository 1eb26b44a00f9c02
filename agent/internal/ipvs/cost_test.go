package ipvs

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// testCost holds that a change of one endpoint writes what it is about, however many Services there are, and that no
// process is started for it: commands are not to be found meanwhile.
func testCost(t *testing.T) {
	n := newNode(t)
	d := n.open(t, n.config())
	const services = 1000
	text := func(last ...string) string {
		var b strings.Builder
		b.WriteString(facts)
		for i := range services {
			fmt.Fprintf(&b, "service default/s%d:/TCP/IPv4 cluster-ip=10.97.%d.%d port=80 usable\n  common 10.244.2.1:8080\n  common 10.244.2.2:8080\n", i, i/250, 1+i%250)
		}
		for _, e := range last {
			b.WriteString("  common " + e + "\n")
		}
		return b.String()
	}
	table := parseTable(t, text())
	started := time.Now()
	sync(t, d, table)
	t.Logf("%d Services from nothing: %v", services, time.Since(started))
	t.Setenv("PATH", "/nowhere")
	for _, c := range []struct {
		name   string
		last   []string
		writes int
	}{
		{"one more", []string{"10.244.2.3:8080"}, 1},
		{"back again: weight 0, and it has no connections", nil, 1},
	} {
		next, changed, err := table.Apply(fwd.DiffTables(table, parseTable(t, text(c.last...))))
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		r, err := d.Sync(t.Context(), table, next, dataplane.Delta{Changed: changed})
		t.Logf("%s: %v, error %v", c.name, time.Since(started), err)
		if r.Writes != c.writes {
			t.Errorf("%s: %d writes, want %d", c.name, r.Writes, c.writes)
		}
		table = next
	}
	if ds, err := d.Audit(t.Context()); err == nil {
		t.Errorf("an audit without commands found %v and no error", ds)
	}
}
