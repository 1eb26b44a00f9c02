package installed

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/web"
)

// proxyLabel says which proxy a node has, where migration.enabled is set.
const proxyLabel = "fairlead.io/proxy"

// TestE2EMigration goes the way of docs/migration.md, there and back, in each mode of kube-proxy: node by node, under 1,000
// connections that stay and steady new ones. No connection is lost, hardly a new one fails, and a Service without endpoints
// refuses at every moment, whichever proxy left rules for it.
func TestE2EMigration(t *testing.T) {
	pitch(t)
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			m := &migration{t: t, mode: mode}
			m.begin()
			m.there()
			if mode == "iptables" {
				m.endpointsThereAndBack()
			}
			m.back()
			m.load.verdict(t)
		})
	}
}

// TestE2EReplacement goes the short way: agents are there and wait, kube-proxy is deleted, and comes back as the guide says.
func TestE2EReplacement(t *testing.T) {
	pitch(t)
	m := &migration{t: t, mode: "nftables"}
	m.prepare()
	notes, err := bed.Apply(t.Context(), "{controller: {endpoints: read}}")
	m.must(err)
	if !strings.Contains(notes, "It forwards, and Fairlead does not") {
		t.Errorf("helm does not warn of kube-proxy:\n%s", notes)
	}
	m.must(bed.WaitController(t.Context()))
	m.until("agents to wait on all nodes", func() bool { return m.waiting() == len(bed.Cluster.Nodes) })
	m.must(bed.Cluster.Client.AppsV1().DaemonSets(meta.NamespaceSystem).Delete(t.Context(), "kube-proxy", meta.DeleteOptions{}))
	begin := time.Now()
	m.must(bed.WaitReady(t.Context()))
	for _, n := range bed.Cluster.Nodes {
		m.until("nothing of kube-proxy is left on "+n.Name, func() bool { return m.left(n, proxysMarks()) == "" })
	}
	t.Logf("all nodes forward by Fairlead after %.1f s", time.Since(begin).Seconds())
	m.probe(true)

	for _, n := range bed.Cluster.Nodes {
		m.setLabel(n, "fairlead")
	}
	_, err = bed.Apply(t.Context(), m.values("read"))
	m.must(err)
	m.must(bed.WaitReady(t.Context()))
	m.must(bed.Cluster.DeployKubeProxy(t.Context(), m.mode, m.patch()))
	m.back()
	m.load.verdict(t)
}

// waiting is how many agents run and are not ready, since kube-proxy forwards.
func (m *migration) waiting() int {
	pods, err := bed.Cluster.Client.CoreV1().Pods(Namespace).List(m.t.Context(), meta.ListOptions{LabelSelector: "app.kubernetes.io/name=" + Agent})
	m.must(err)
	n := 0
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil && !c.Ready && c.RestartCount == 0 {
				n++
			}
		}
	}
	return n
}

type migration struct {
	t    *testing.T
	mode string
	load *load
	// fragile is a Service whose only Pod comes and goes; never one that never had any.
	fragile, never target
	pod            *core.Pod
}

// prepare is a cluster with kube-proxy and traffic.
func (m *migration) prepare() {
	m.t.Helper()
	m.must(bed.Cluster.DeployKubeProxy(m.t.Context(), m.mode, nil))
	m.fragile, m.never = makeService(m.t, "fragile"), makeService(m.t, "never")
	var err error
	m.pod, err = web.StartPod(m.t.Context(), bed.Cluster.Client, web.PodConfig{Name: "fragile", Node: bed.Cluster.Nodes[1].Name, Labels: map[string]string{"app": "fragile"}})
	m.must(err)
	m.t.Cleanup(func() { m.must(web.EndPod(context.WithoutCancel(m.t.Context()), bed.Cluster.Client, "fragile")) })
	_, err = web.ReadyPods(m.t.Context(), bed.Cluster.Client)
	m.must(err)
	m.answers(m.fragile)
	m.load = startLoad(m.t)
	m.t.Cleanup(func() { m.must(bed.Uninstall(context.WithoutCancel(m.t.Context()))) })
}

// begin adds an installation that forwards nowhere yet.
func (m *migration) begin() {
	m.t.Helper()
	m.prepare()
	notes, err := bed.Apply(m.t.Context(), m.values("read"))
	m.must(err)
	if !strings.Contains(notes, "WARNING: kube-proxy runs") {
		m.t.Errorf("helm does not warn of kube-proxy:\n%s", notes)
	}
	m.must(bed.WaitController(m.t.Context()))
	_, err = bed.Cluster.Client.AppsV1().DaemonSets(meta.NamespaceSystem).Patch(m.t.Context(), "kube-proxy", types.StrategicMergePatchType, m.patch(), meta.PatchOptions{})
	m.must(err)
	m.must(bed.Cluster.WaitDaemonSet(m.t.Context(), meta.NamespaceSystem, "kube-proxy"))
}

func (m *migration) values(endpoints string) string {
	return "{controller: {endpoints: " + endpoints + "}, agent: {mode: " + m.mode + "}, migration: {enabled: true}}"
}

// patch keeps kube-proxy away from the nodes that Fairlead has: the file that the guide names, as JSON.
func (m *migration) patch() []byte {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(bed.chart.Dir(), "files", "kube-proxy-patch.yaml"))
	m.must(err)
	patch, err := yaml.YAMLToJSON(text)
	m.must(err)
	return patch
}

// there hands all nodes over to Fairlead. In between, both proxies are at work, on a node each.
func (m *migration) there() {
	m.t.Helper()
	for i, n := range bed.Cluster.Nodes {
		begin := time.Now()
		m.label(n, "fairlead")
		m.must(bed.Cluster.WaitDaemonSet(m.t.Context(), Namespace, Agent))
		m.must(bed.Cluster.WaitDaemonSet(m.t.Context(), meta.NamespaceSystem, "kube-proxy"))
		m.until("nothing of kube-proxy is left on "+n.Name, func() bool { return m.left(n, proxysMarks()) == "" })
		m.t.Logf("%s forwards by Fairlead after %.1f s", n.Name, time.Since(begin).Seconds())
		m.probe(i == 0)
	}
}

// back hands them over to kube-proxy.
func (m *migration) back() {
	m.t.Helper()
	for i, n := range bed.Cluster.Nodes {
		begin := time.Now()
		m.label(n, "kube-proxy")
		m.must(bed.Cluster.WaitDaemonSet(m.t.Context(), meta.NamespaceSystem, "kube-proxy"))
		m.must(bed.Cluster.WaitDaemonSet(m.t.Context(), Namespace, Cleanup))
		if left := m.left(n, ourMarks()); left != "" {
			m.t.Errorf("of Fairlead is left on %s:\n%s", n.Name, left)
		}
		m.t.Logf("%s forwards by kube-proxy after %.1f s", n.Name, time.Since(begin).Seconds())
		m.probe(i == 0)
	}
	for _, n := range bed.Cluster.Nodes {
		m.label(n, "")
	}
}

// probe looks at Services without endpoints: the one that never had any, and, if asked to, the one that loses them now.
func (m *migration) probe(lose bool) {
	m.t.Helper()
	m.refuses(m.never)
	m.answers(m.fragile)
	m.answers(m.load.outside)
	if !lose {
		return
	}
	m.must(web.Tell(m.t.Context(), bed.Cluster.Client, m.pod, false))
	m.refuses(m.fragile)
	m.must(web.Tell(m.t.Context(), bed.Cluster.Client, m.pod, true))
	m.answers(m.fragile)
}

// endpointsThereAndBack changes who writes EndpointSlices, while the nodes have Fairlead.
func (m *migration) endpointsThereAndBack() {
	m.t.Helper()
	m.must(bed.Cluster.RestartControllerManager(m.t.Context(), false))
	_, err := bed.Apply(m.t.Context(), m.values("write"))
	m.must(err)
	m.must(bed.WaitController(m.t.Context()))
	m.until("slices are Fairlead's", func() bool { return m.slicesBy("fairlead.io") && !m.slicesBy("k8s.io") })
	m.probe(true)
	_, err = bed.Apply(m.t.Context(), m.values("read"))
	m.must(err)
	m.must(bed.WaitController(m.t.Context()))
	m.must(bed.Cluster.RestartControllerManager(m.t.Context(), true))
	m.until("slices are Kubernetes' own", func() bool { return m.slicesBy("k8s.io") })
	_, err = bed.Kubectl(m.t.Context(), "delete", "endpointslices", "--all-namespaces", "--selector", "endpointslice.kubernetes.io/managed-by in (endpointslice-controller.fairlead.io, endpointslicemirroring-controller.fairlead.io)")
	m.must(err)
	m.probe(true)
}

// slicesBy reports whether the fragile Service has a slice of that author.
func (m *migration) slicesBy(author string) bool {
	list, err := bed.Cluster.Client.DiscoveryV1().EndpointSlices("default").List(m.t.Context(), meta.ListOptions{LabelSelector: "kubernetes.io/service-name=fragile"})
	if err != nil {
		return false
	}
	for _, s := range list.Items {
		if strings.HasSuffix(s.Labels["endpointslice.kubernetes.io/managed-by"], author) {
			return true
		}
	}
	return false
}

// label gives a node to a proxy; "" takes the label away.
func (m *migration) label(n *cluster.Node, proxy string) {
	m.t.Helper()
	m.setLabel(n, proxy)
	m.until("Pods know of "+n.Name, func() bool { return m.podsFollow(n, proxy) })
}

func (m *migration) setLabel(n *cluster.Node, proxy string) {
	m.t.Helper()
	value := any(proxy)
	if proxy == "" {
		value = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{proxyLabel: value}}})
	m.must(err)
	_, err = bed.Cluster.Client.CoreV1().Nodes().Patch(m.t.Context(), n.Name, types.MergePatchType, patch, meta.PatchOptions{})
	m.must(err)
}

// podsFollow reports whether DaemonSets have heard of the node's label: only then do their numbers mean anything.
func (m *migration) podsFollow(n *cluster.Node, proxy string) bool {
	want := map[string]bool{Agent: proxy == "fairlead", Cleanup: proxy == "kube-proxy", "kube-proxy": proxy != "fairlead"}
	for name, wanted := range want {
		namespace, selector := Namespace, "app.kubernetes.io/name="+name
		if name == "kube-proxy" {
			namespace, selector = meta.NamespaceSystem, "k8s-app=kube-proxy"
		}
		pods, err := bed.Cluster.Client.CoreV1().Pods(namespace).List(m.t.Context(), meta.ListOptions{LabelSelector: selector, FieldSelector: "spec.nodeName=" + n.Name})
		if err != nil {
			return false
		}
		there := false
		for _, p := range pods.Items {
			there = there || p.DeletionTimestamp == nil
		}
		if there != wanted {
			return false
		}
	}
	return true
}

// left is what a node's kernel holds of a proxy.
func (m *migration) left(n *cluster.Node, marks []string) string {
	m.t.Helper()
	rules, err := kernelOf(m.t.Context(), n)
	m.must(err)
	return marked(rules, marks)
}

func (m *migration) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *migration) until(what string, done func() bool) {
	m.t.Helper()
	until(m.t, what, done)
}

func (m *migration) answers(to target) { m.t.Helper(); expectFate(m.t, to, "") }
func (m *migration) refuses(to target) { m.t.Helper(); expectFate(m.t, to, "refused") }
