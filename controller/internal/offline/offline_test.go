package offline_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead/fairlead/controller/internal/compile"
	"github.com/fairlead/fairlead/controller/internal/offline"
	"github.com/fairlead/fairlead/proto/fwd"
)

func TestTable(t *testing.T) {
	manifests, err := os.ReadFile("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/n1.txt")
	if err != nil {
		t.Fatal(err)
	}
	table, problems, err := offline.Table(bytes.NewReader(manifests), "n1", compile.Config{})
	if err != nil || len(problems) > 0 {
		t.Fatalf("error %v, problems %v", err, problems)
	}
	if d := cmp.Diff(string(want), text(t, table)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func text(t *testing.T, table *fwd.Table) string {
	t.Helper()
	var b strings.Builder
	if err := fwd.WriteText(&b, table); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const (
	node = "{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/zone: a}}}\n---\n"
	web  = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.0.10", "selector": {"app": "web"}, %s "ports": [{"port": 80}]}}` + "\n---\n"
	ours = `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: web-1, labels: {kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}},
  addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [10.1.0.1], hints: {forZones: [{name: a}]}}]}` + "\n---\n"
	pod = `{apiVersion: v1, kind: Pod, metadata: {name: web-1, labels: {app: web}}, spec: {nodeName: n1}, status: {podIP: %s, conditions: [{type: Ready, status: "True"}]}}` + "\n---\n"
)

// TestSources: where the endpoints of a Service with a selector come from.
func TestSources(t *testing.T) {
	plain, auto := fmt.Sprintf(web, ""), strings.Replace(fmt.Sprintf(web, ""), `"name": "web"`, `"name": "web", "annotations": {"service.kubernetes.io/topology-mode": "Auto"}`, 1)
	for _, c := range []struct{ name, manifests, want string }{
		{"Pods", node + plain + ours + fmt.Sprintf(pod, "10.1.0.2"), "service default/web:/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable\n  common 10.1.0.2:80\n"},
		{"slices, where there is no Pod at all", node + plain + ours, "service default/web:/TCP/IPv4 cluster-ip=10.96.0.10 port=80 cluster-scope=zone usable\n  zone 10.1.0.1:80\n"},
		{"Pods with the hints of slices", node + auto + ours + fmt.Sprintf(pod, "10.1.0.1"), "service default/web:/TCP/IPv4 cluster-ip=10.96.0.10 port=80 cluster-scope=zone usable\n  zone 10.1.0.1:80\n"},
		{"the last of one name", node + plain + fmt.Sprintf(pod, "10.1.0.2") + fmt.Sprintf(pod, "10.1.0.3"), "service default/web:/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable\n  common 10.1.0.3:80\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, _, err := offline.Table(strings.NewReader(c.manifests), "n1", compile.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, text(t, table)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	manifests := node + fmt.Sprintf(web, `"externalIPs": ["198.51.100.1"],`) + fmt.Sprintf(pod, "127.0.0.1")
	_, problems, err := offline.Table(strings.NewReader(manifests), "n1", compile.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) != 2 || problems[0].Reason != compile.ReasonExternalIPForbidden || problems[1].Reason != "InvalidEndpointAddress" {
		t.Errorf("problems: %+v", problems)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ name, manifests, node, want string }{
		{"no such node", node, "n7", `node "n7": not in the manifests, which have the Nodes [n1]`},
		{"no manifests", "", "n1", `which have the Nodes []`},
		{"no YAML", node + "a: [", "n1", "document 2: "},
		{"a key twice", "kind: Node\nkind: Pod\n", "n1", `document 1: `},
		{"no kind", "apiVersion: v1\n", "n1", "document 1: kind: is empty"},
		{"not an object", "- a\n", "n1", "document 1: is no object: want Kubernetes objects"},
		{"text", "hello world\n", "n1", "document 1: is no object"},
		{"metadata that is none", "kind: Pod\nmetadata: 7\n", "n1", "metadata: is a number: want"},
		{"a string for a number", node + `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.10, ports: [{port: "80"}]}}`, "n1", "document 2 (Service web): spec.ports.port: is a string: want a int32"},
		{"in a list", "{apiVersion: v1, kind: List, items: [" + strings.TrimSuffix(node, "\n---\n") + ", {apiVersion: v1, kind: Service, metadata: {name: web}}]}", "n1", "document 1, item 2 (Service web): spec.clusterIP: is empty"},
		{"a name that is none", node + "{apiVersion: v1, kind: Pod, metadata: {name: 'a b'}}", "n1", `document 2 (Pod a b): metadata.name: "a b"`},
		{"a port name that is none", node + `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {clusterIP: 10.96.0.10, ports: [{name: "a b", port: 80}]}}`, "n1", `spec.ports[0].name: "a b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, _, err := offline.Table(strings.NewReader(c.manifests), c.node, compile.Config{})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want %q in one line (table %v)", err, c.want, table)
			}
		})
	}
}
