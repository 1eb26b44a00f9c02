package compile

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// cluster is a Compiler with the parts that its updates add up to.
type cluster struct {
	t     testing.TB
	c     *Compiler
	parts map[fwd.Audience]*fwd.Part
	zones map[string]string
}

// newCluster has the nodes n1 and n2 in the zones a and b, and n3 without a zone.
func newCluster(t testing.TB, cfg Config) *cluster {
	cl := &cluster{t: t, c: New(cfg), parts: map[fwd.Audience]*fwd.Part{}, zones: map[string]string{}}
	for name, zone := range map[string]string{"n1": "a", "n2": "b", "n3": ""} {
		cl.c.SetNode(nodeObject(name, zone))
	}
	return cl
}

// flush applies what Flush says, and holds it to its own documentation.
func (cl *cluster) flush() Output {
	cl.t.Helper()
	out := cl.c.Flush()
	if !slices.IsSortedFunc(out.Updates, func(a, b fwd.Update) int { return a.Compare(b.Audience) }) {
		cl.t.Errorf("updates are not sorted by audience")
	}
	for _, u := range out.Updates {
		cl.apply(u)
	}
	for _, z := range out.Zones {
		if z.Gone {
			delete(cl.zones, z.Node)
		} else {
			cl.zones[z.Node] = z.Zone
		}
	}
	return out
}

func (cl *cluster) apply(u fwd.Update) {
	cl.t.Helper()
	part := cl.parts[u.Audience]
	if part == nil {
		part = &fwd.Part{}
	}
	keys := slices.Clone(u.Remove)
	for _, key := range u.Remove {
		if _, ok := part.Get(key); !ok {
			cl.t.Errorf("%v: removes a row that is not there", u.Audience)
		}
	}
	for _, r := range u.Put {
		keys = append(keys, r.Key)
		if old, ok := part.Get(r.Key); ok && old == r {
			cl.t.Errorf("%v: puts a row that is there", u.Audience)
		}
	}
	slices.Sort(keys)
	if len(keys) == 0 || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		cl.t.Errorf("%v: names %d keys, some twice", u.Audience, len(keys))
	}
	if !slices.IsSorted(u.Remove) || !slices.IsSortedFunc(u.Put, func(a, b fwd.Row) int { return strings.Compare(a.Key, b.Key) }) {
		cl.t.Errorf("%v: is not sorted", u.Audience)
	}
	cl.parts[u.Audience] = part.With(u.Remove, u.Put)
	if cl.parts[u.Audience].Len() == 0 {
		delete(cl.parts, u.Audience)
	}
}

// table is what an agent of the node holds.
func (cl *cluster) table(node string) *fwd.Table {
	cl.t.Helper()
	table, err := fwd.NewTable(map[fwd.Scope]*fwd.Part{
		fwd.Common: cl.parts[fwd.Audience{Scope: fwd.Common}],
		fwd.Zone:   cl.parts[fwd.Audience{Scope: fwd.Zone, Name: cl.zones[node]}],
		fwd.Node:   cl.parts[fwd.Audience{Scope: fwd.Node, Name: node}],
	})
	if err != nil {
		cl.t.Fatalf("table of %s: %v", node, err)
	}
	if table.Refused()+table.Unknown() > 0 {
		cl.t.Errorf("table of %s: %d rows refused, %d unknown", node, table.Refused(), table.Unknown())
	}
	return table
}

// text is the table without its facts.
func (cl *cluster) text(node string) string {
	cl.t.Helper()
	var b strings.Builder
	if err := fwd.WriteText(&b, cl.table(node)); err != nil {
		cl.t.Fatal(err)
	}
	_, services, _ := strings.Cut("\n"+b.String(), "\nservice ")
	if services == "" {
		return ""
	}
	return "service " + services
}

// digests are those of all parts.
func (cl *cluster) digests() map[string]uint64 {
	ds := map[string]uint64{}
	for a, p := range cl.parts {
		ds[a.String()] = p.Digest()
	}
	return ds
}

// compiled flushes one Service with endpoints and returns the cluster and what Flush said.
func compiled(t *testing.T, cfg Config, svc *corev1.Service, eps ...endpoints.Endpoint) (*cluster, Output) {
	t.Helper()
	cl := newCluster(t, cfg)
	before := svc.DeepCopy()
	cl.c.SetService(svc, eps)
	out := cl.flush()
	if d := cmp.Diff(before, svc); d != "" {
		t.Errorf("the Service was changed:\n%s", d)
	}
	return cl, out
}

// wantTable compares a node's table with lines of the text form, whose fields may be in any order.
func wantTable(t *testing.T, cl *cluster, node string, lines ...string) {
	t.Helper()
	wanted, err := fwd.ParseText(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := fwd.WriteText(&want, wanted); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.String(), cl.text(node)); d != "" {
		t.Errorf("table of %s (-want +got):\n%s", node, d)
	}
}

func wantProblems(t *testing.T, out Output, want ...string) {
	t.Helper()
	var got []string
	for _, p := range out.Problems {
		got = append(got, p.Namespace+"/"+p.Name+" "+p.Reason+" "+p.Message)
	}
	if len(got) != len(want) {
		t.Errorf("problems %q, want %q", got, want)
		return
	}
	for i := range want {
		for part := range strings.SplitSeq(want[i], "…") {
			if !strings.Contains(got[i], part) {
				t.Errorf("problem %q, want %q", got[i], want[i])
			}
		}
	}
}

func nodeObject(name, zone string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if zone != "" {
		n.Labels = map[string]string{corev1.LabelTopologyZone: zone}
	}
	return n
}

// web is default/web with cluster IP 10.96.0.10 and port 80.
func web(change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u-web", CreationTimestamp: metav1.Unix(1000, 0)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	for _, f := range change {
		f(svc)
	}
	return svc
}

func named(name, clusterIP string, created int64) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Name, s.UID, s.CreationTimestamp = name, types.UID("u-"+name), metav1.Unix(created, 0)
		s.Spec.ClusterIP, s.Spec.ClusterIPs = clusterIP, []string{clusterIP}
	}
}

func udp(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }

func internal(s *corev1.Service) {
	s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
}

func nodePort(port int32) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = port
	}
}

func external(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

func loadBalancer(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
}

func externalIPs(ips ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.ExternalIPs = ips }
}

func sourceRangesOf(ranges ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = ranges }
}

var anyExternalIP = Config{AllowedExternalIPs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}

// endpoint is ready, and serves the port http by TCP and UDP at 8080.
func endpoint(addr, node string, change ...func(*endpoints.Endpoint)) endpoints.Endpoint {
	e := endpoints.Endpoint{
		Addr: netip.MustParseAddr(addr), Node: node, Ready: true, Serving: true,
		Ports: []endpoints.Port{{Name: "http", Protocol: fwd.TCP, Port: 8080}, {Name: "http", Protocol: fwd.UDP, Port: 8080}},
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

func unready(e *endpoints.Endpoint) { e.Ready, e.Serving = false, false }

func draining(e *endpoints.Endpoint) { e.Ready, e.Terminating = false, true }

func zoneHint(zones ...string) func(*endpoints.Endpoint) {
	return func(e *endpoints.Endpoint) { e.HintZones = zones }
}

func nodeHint(nodes ...string) func(*endpoints.Endpoint) {
	return func(e *endpoints.Endpoint) { e.HintNodes = nodes }
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func prefixes(texts ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, text := range texts {
		ps = append(ps, netip.MustParsePrefix(text))
	}
	return ps
}

func addrs(texts ...string) []netip.Addr {
	var as []netip.Addr
	for _, text := range texts {
		as = append(as, netip.MustParseAddr(text))
	}
	return as
}
