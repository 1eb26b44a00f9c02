package healthcheck

import (
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

const web = `
service default/web:http/TCP/IPv4 cluster-ip=10.96.0.10 port=80 health-check-node-port=32000 external-local usable
  common 10.0.0.2:80
  common 10.0.0.3:80
  node 10.0.0.2:80
service default/web:https/TCP/IPv4 cluster-ip=10.96.0.10 port=443 health-check-node-port=32000 external-local usable
  node 10.0.0.2:443
  node 10.0.0.4:443
  node 10.0.0.5:443 draining
service default/web:http/TCP/IPv6 cluster-ip=fd00::10 port=80 health-check-node-port=32000 external-local usable
  node [fd01::2]:80
service default/api:/TCP/IPv4 cluster-ip=10.96.0.11 port=80 health-check-node-port=32001 external-local usable
  common 10.0.0.9:80
service default/plain:/TCP/IPv4 cluster-ip=10.96.0.12 port=80 usable
  node 10.0.0.2:80
`

// TestIndex counts distinct ready local addresses over all ports of a Service, by family.
func TestIndex(t *testing.T) {
	var x Index
	got := x.Update(table(t, web), dataplane.Delta{All: true})
	want := []Port{
		{Namespace: "default", Name: "api", NodePort: 32001},
		{Namespace: "default", Name: "web", NodePort: 32000, LocalEndpoints: [2]int{2, 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestIndexFollows: step by step the index tells the same as one that sees the table for the first time.
func TestIndexFollows(t *testing.T) {
	steps := []string{
		"", web, strings.Replace(web, "node 10.0.0.4:443", "node 10.0.0.6:443", 1),
		strings.ReplaceAll(web, "32000", "32002"),
		strings.ReplaceAll(web, " health-check-node-port=32001", ""),
		strings.ReplaceAll(web, "32000", "32001"), // a clash
		web, "",
	}
	x, before := Index{}, &fwd.Table{}
	for i, text := range steps {
		now := table(t, text)
		_, changed, err := before.Apply(fwd.DiffTables(before, now))
		if err != nil {
			t.Fatal(err)
		}
		got, want := x.Update(now, dataplane.Delta{Changed: changed}), new(Index).Update(now, dataplane.Delta{All: true})
		if !reflect.DeepEqual(got, want) {
			t.Errorf("step %d: got %+v, want %+v", i, got, want)
		}
		if i == 5 && (len(got) != 1 || got[0].Name != "api") {
			t.Errorf("clash: got %+v, want the first Service alone", got)
		}
		before = now
	}
}

func table(t *testing.T, text string) *fwd.Table {
	t.Helper()
	tb, err := fwd.ParseText(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return tb
}
