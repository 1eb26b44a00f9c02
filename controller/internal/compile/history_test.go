package compile

import (
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

func emptyCluster(t *testing.T) *cluster {
	return &cluster{t: t, c: New(anyExternalIP), parts: map[fwd.Audience]*fwd.Part{}, zones: map[string]string{}}
}

// fresh compiles a world at once, its objects in the order given.
func fresh(t *testing.T, w *world, names []string) *cluster {
	cl := emptyCluster(t)
	for _, name := range names {
		w.set(cl.c, name)
	}
	cl.flush()
	return cl
}

// TestPathIndependence: after any history of changes, in any portions, the parts are those of the final state alone.
func TestPathIndependence(t *testing.T) {
	for seed := range uint64(300) {
		g, w, cl := newGenerator(seed), newWorld(), emptyCluster(t)
		for range 5 + g.IntN(60) {
			name := g.change(w)
			for range 1 + g.IntN(2) {
				w.set(cl.c, name)
			}
			if g.one(2) {
				cl.flush()
			}
			if g.one(10) {
				if out := flushTwice(cl); !out.Empty() {
					t.Fatalf("seed %d: a second flush says %+v", seed, out)
				}
			}
		}
		cl.flush()
		all := slices.Concat(worldNodes, worldServices)
		g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		want := fresh(t, w, all)
		if d := cmp.Diff(want.digests(), cl.digests()) + cmp.Diff(want.zones, cl.zones); d != "" {
			t.Fatalf("seed %d: (-fresh +history):\n%s", seed, d)
		}
		for _, name := range all {
			delete(w.services, name)
			delete(w.nodes, name)
			w.set(cl.c, name)
		}
		cl.flush()
		if len(cl.parts)+len(cl.zones) > 0 {
			t.Fatalf("seed %d: rows are left in an empty cluster: %v", seed, cl.digests())
		}
		if n := len(cl.c.registry) + len(cl.c.located) + len(cl.c.topological) + len(cl.c.services) + len(cl.c.nodes); n > 0 {
			t.Fatalf("seed %d: the compiler of an empty cluster keeps %d entries", seed, n)
		}
	}
}

func flushTwice(cl *cluster) Output {
	cl.flush()
	return cl.flush()
}

// TestOrderOfInput: twenty shuffles of one state give the same updates, byte for byte, and the same problems.
func TestOrderOfInput(t *testing.T) {
	g, w := newGenerator(1), newWorld()
	for range 200 {
		g.change(w)
	}
	all := slices.Concat(worldNodes, worldServices)
	var first Output
	for i := range 20 {
		g.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		c := New(anyExternalIP)
		for _, name := range all {
			g.Shuffle(len(w.eps[name]), func(i, j int) { w.eps[name][i], w.eps[name][j] = w.eps[name][j], w.eps[name][i] })
			w.set(c, name)
		}
		out := c.Flush()
		if i == 0 {
			first = out
		}
		if d := cmp.Diff(first, out); d != "" {
			t.Fatalf("shuffle %d differs:\n%s", i, d)
		}
	}
	if len(first.Updates) == 0 || len(first.Problems) == 0 {
		t.Fatal("the world is empty")
	}
}

// TestInformersObjectsAreNotChanged, neither the endpoints that were given.
func TestInformersObjectsAreNotChanged(t *testing.T) {
	g, w := newGenerator(2), newWorld()
	for range 300 {
		name := g.change(w)
		svc, node, eps := w.services[name].DeepCopy(), w.nodes[name].DeepCopy(), slices.Clone(w.eps[name])
		cl := fresh(t, w, []string{name})
		cl.flush()
		if d := cmp.Diff(svc, w.services[name]) + cmp.Diff(node, w.nodes[name]) + cmp.Diff(eps, w.eps[name], cmp.Comparer(func(a, b endpoints.Endpoint) bool { return endpoints.Compare(a, b) == 0 })); d != "" {
			t.Fatalf("changed:\n%s", d)
		}
	}
}

// TestAChangeCostsItsOwnRows: one endpoint more is one row, and so is a Node's fact.
func TestAChangeCostsItsOwnRows(t *testing.T) {
	cl, _ := compiled(t, Config{}, web(), endpoint("10.1.0.1", "n1"), endpoint("10.1.0.2", "n2"))
	cl.c.SetService(web(), []endpoints.Endpoint{endpoint("10.1.0.1", "n1"), endpoint("10.1.0.2", "n2"), endpoint("10.1.0.3", "n2")})
	out := cl.flush()
	if len(out.Updates) != 1 || len(out.Updates[0].Put) != 1 || len(out.Updates[0].Remove) != 0 {
		t.Errorf("one endpoint more: %+v", out.Updates)
	}
	n := nodeObject("n1", "a")
	n.DeletionTimestamp = &metav1.Time{}
	cl.c.SetNode(n)
	out = cl.flush()
	if len(out.Updates) != 1 || out.Updates[0].Audience != (fwd.Audience{Scope: fwd.Node, Name: "n1"}) || len(out.Updates[0].Put) != 1 || len(out.Zones) != 0 {
		t.Errorf("a Node's fact: %+v", out)
	}
}

// TestZonesComeAndGo: a new zone gets its lists, a zone without nodes loses them, other parts stay.
func TestZonesComeAndGo(t *testing.T) {
	cl, _ := compiled(t, Config{}, web(), endpoint("10.1.0.1", "n1", zoneHint("a")), endpoint("10.1.0.2", "n2", zoneHint("c")))
	zone := func(name string) fwd.Audience { return fwd.Audience{Scope: fwd.Zone, Name: name} }
	cl.c.SetNode(nodeObject("n4", "c"))
	out := cl.flush()
	if len(out.Updates) != 2 || out.Updates[0].Audience != zone("c") || len(out.Updates[0].Put) != 1 {
		t.Errorf("zone c came: %+v", out.Updates)
	}
	wantTable(t, cl, "n4", plain+" cluster-scope=zone usable", "  zone 10.1.0.2:8080")
	cl.c.SetNode(nodeObject("n4", "b"))
	out = cl.flush()
	if len(out.Updates) != 1 || out.Updates[0].Audience != zone("c") || len(out.Updates[0].Remove) != 1 {
		t.Errorf("zone c went: %+v", out.Updates)
	}
	if want := []NodeZone{{Node: "n4", Zone: "b"}}; !slices.Equal(out.Zones, want) {
		t.Errorf("zones %v, want %v", out.Zones, want)
	}
	cl.c.DeleteNode("n4")
	if want, out := []NodeZone{{Node: "n4", Gone: true}}, cl.flush(); !slices.Equal(out.Zones, want) {
		t.Errorf("zones %v, want %v", out.Zones, want)
	}
}

// TestNodeFacts: what an agent learns of its Node and of the cluster.
func TestNodeFacts(t *testing.T) {
	cl := newCluster(t, Config{})
	n := nodeObject("n1", "a")
	n.Spec.PodCIDRs = []string{"fd00:1::/64", "10.244.1.7/24"}
	n.Spec.Taints = []corev1.Taint{{Key: "other"}, {Key: TaintAutoscaler, Effect: corev1.TaintEffectNoSchedule}}
	n.DeletionTimestamp = &metav1.Time{}
	for _, a := range []struct {
		kind    corev1.NodeAddressType
		address string
	}{
		{corev1.NodeHostName, "n1"},
		{corev1.NodeExternalIP, "198.51.100.1"},
		{corev1.NodeInternalIP, "2001:db8::1"},
		{corev1.NodeInternalIP, "192.0.2.2"},
		{corev1.NodeInternalIP, "192.0.2.1"},
		{corev1.NodeInternalIP, "127.0.0.1"},
		{corev1.NodeInternalIP, "192.0.2.2"},
	} {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: a.kind, Address: a.address})
	}
	cl.c.SetNode(n)
	cl.c.SetServiceCIDRs(prefixes("fd96::/112", "10.96.0.0/16"))
	cl.flush()
	facts := cl.table("n1").Node()
	want := fwd.NodeFacts{
		Deleting: true, AutoscalerDraining: true, PodCIDRs: prefixes("10.244.1.0/24", "fd00:1::/64"),
		Addresses: addrs("2001:db8::1", "192.0.2.2", "192.0.2.1"),
	}
	if !reflect.DeepEqual(want, facts) {
		t.Errorf("facts %+v, want %+v", facts, want)
	}
	if got := cl.table("n2").Cluster().ServiceCIDRs; !slices.Equal(got, prefixes("10.96.0.0/16", "fd96::/112")) {
		t.Errorf("service CIDRs %v", got)
	}
	cl.c.SetServiceCIDRs(nil)
	cl.flush()
	if got := cl.table("n2").Cluster().ServiceCIDRs; got != nil {
		t.Errorf("service CIDRs %v after none were left", got)
	}
}
