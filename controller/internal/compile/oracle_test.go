package compile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestEveryNodeByItself compares each node's table with what a proxy computes that sees the whole cluster from this one
// node, Service port by Service port: the way of SEMANTICS 2, without parts, indexes or increments.
func TestEveryNodeByItself(t *testing.T) {
	seen := map[string]int{}
	const worlds = 1000
	for seed := range uint64(worlds) {
		g, w := newGenerator(seed), newWorld()
		for range 40 {
			g.change(w)
		}
		cl := fresh(t, w, slices.Concat(worldNodes, worldServices))
		claims := claimsIn(w)
		for node, object := range w.nodes {
			table := cl.table(node)
			v := nodeView{node: node, zone: object.Labels[corev1.LabelTopologyZone], claims: claims, seen: seen}
			for name, svc := range w.services {
				for _, sp := range readWorld(svc) {
					p, ok := table.Port(sp.ID())
					if !ok {
						t.Fatalf("seed %d: %v is not in the table of %s", seed, sp.PortName, node)
					}
					if complaint := v.compare(p, sp, w.eps[name]); complaint != "" {
						t.Fatalf("seed %d: node %s: %v: %s", seed, node, sp.PortName, complaint)
					}
				}
			}
		}
	}
	for _, feature := range []string{"zone", "node", "all", "fallback", "local", "local fallback", "reject", "drop", "kept", "lost", "virtual endpoint"} {
		if seen[feature] < worlds/20 {
			t.Errorf("%s: seen %d times in %d worlds: the generator tests nothing", feature, seen[feature], worlds)
		}
	}
}

func readWorld(svc *corev1.Service) []fwd.ServicePort {
	cfg := anyExternalIP
	ports, _ := cfg.read(svc)
	return ports
}

// claimant is a Service port with what decides between claimants.
type claimant struct {
	created int64
	uid     string
	name    fwd.PortName
}

// claimsIn sorts the claimants of each virtual IP and node port, the winner first.
func claimsIn(w *world) map[string][]claimant {
	claims := map[string][]claimant{}
	cluster := map[string]fwd.PortName{}
	for _, svc := range w.services {
		for _, sp := range readWorld(svc) {
			c := claimant{svc.CreationTimestamp.Unix(), string(svc.UID), sp.PortName}
			for _, k := range keysOf(sp) {
				claims[k] = append(claims[k], c)
			}
			k := virtualKey(netip.AddrPortFrom(sp.ClusterIP, sp.Port), sp.Protocol)
			if old, taken := cluster[k]; !taken || sp.PortName.Compare(old) < 0 {
				cluster[k] = sp.PortName
			}
		}
	}
	for k, cs := range claims {
		slices.SortFunc(cs, func(a, b claimant) int {
			return cmp.Or(cmp.Compare(a.created, b.created), strings.Compare(a.uid, b.uid), a.name.Compare(b.name))
		})
		// No two Services of a world have one cluster IP, but two ports of one may share its number.
		if owner, ok := cluster[k]; ok {
			i := slices.IndexFunc(cs, func(c claimant) bool { return c.name == owner })
			claims[k] = slices.Insert(slices.Delete(slices.Clone(cs), i, i+1), 0, cs[i])
		}
	}
	return claims
}

func virtualKey(a netip.AddrPort, p fwd.Protocol) string { return a.String() + "/" + p.String() }

func nodePortKey(sp fwd.ServicePort) string {
	return fmt.Sprintf("node port %d/%v/%v", sp.NodePort, sp.Protocol, sp.Family)
}

func keysOf(sp fwd.ServicePort) []string {
	var keys []string
	for _, ip := range sp.VirtualIPs() {
		keys = append(keys, virtualKey(netip.AddrPortFrom(ip, sp.Port), sp.Protocol))
	}
	if sp.NodePort != 0 {
		keys = append(keys, nodePortKey(sp))
	}
	return keys
}

// nodeView is what one node sees.
type nodeView struct {
	node, zone string
	claims     map[string][]claimant
	seen       map[string]int
}

// compare says what differs between a row and lists and what sp and eps ask for; "" is nothing.
func (v nodeView) compare(p *fwd.Port, sp fwd.ServicePort, eps []endpoints.Endpoint) string {
	var mine []string
	for _, k := range keysOf(sp) {
		if v.claims[k][0].name == sp.PortName {
			mine = append(mine, k)
		} else {
			v.seen["lost"]++
		}
	}
	if got := keysOf(p.ServicePort); !slices.Equal(got, mine) {
		return "has " + strings.Join(got, " ") + ", want " + strings.Join(mine, " ")
	}
	all := v.endpoints(sp, eps)
	ready := choose(all, func(e seenEndpoint) bool { return e.Ready })
	draining := choose(all, func(e seenEndpoint) bool { return e.Serving && e.Terminating })
	if usable := len(ready)+len(draining) > 0; p.Usable != usable {
		return "usable is wrong"
	}
	internal, external := sp.InternalLocal, p.NodePort != 0 || len(p.ExternalIPs)+len(p.LoadBalancerIPs) > 0
	local := internal || sp.ExternalLocal
	if !internal || external {
		want := v.clusterList(ready, draining, local)
		if got := listed(p.Cluster()); got != want {
			return "cluster list " + got + ", want " + want
		}
		v.note("reject", want == "" && !p.Usable)
	}
	if local {
		want := v.localList(ready, draining)
		if got := listed(p.Local()); got != want {
			return "local list " + got + ", want " + want
		}
		v.note("drop", want == "" && p.Usable)
	}
	if sp.Protocol == fwd.UDP {
		return v.compareServing(p, all)
	}
	return ""
}

func (v nodeView) compareServing(p *fwd.Port, all []seenEndpoint) string {
	for _, e := range all {
		known := slices.ContainsFunc(p.Serving(), func(b fwd.Backend) bool { return b.Addr == e.at })
		if e.Serving && !known {
			return e.at.String() + " serves and is not kept"
		}
		if known && !e.Serving && !e.Ready {
			return e.at.String() + " does not serve and is kept"
		}
		v.note("kept", known && !e.Ready)
	}
	return ""
}

func (v nodeView) note(feature string, is bool) {
	if is {
		v.seen[feature]++
	}
}

type seenEndpoint struct {
	endpoints.Endpoint
	at netip.AddrPort
}

// endpoints are those of a Service port, one for each address and port, without those that are virtual IPs.
func (v nodeView) endpoints(sp fwd.ServicePort, eps []endpoints.Endpoint) []seenEndpoint {
	best := map[netip.AddrPort]endpoints.Endpoint{}
	for _, e := range eps {
		for _, p := range e.Ports {
			at := netip.AddrPortFrom(e.Addr, p.Port)
			if p.Name != sp.PortName.Port || p.Protocol != sp.Protocol || fwd.FamilyOf(e.Addr) != sp.Family {
				continue
			}
			if len(v.claims[virtualKey(at, sp.Protocol)]) > 0 {
				v.seen["virtual endpoint"]++
				continue
			}
			if old, ok := best[at]; !ok || endpoints.Compare(e, old) < 0 {
				best[at] = e
			}
		}
	}
	var all []seenEndpoint
	for at, e := range best {
		all = append(all, seenEndpoint{e, at})
	}
	slices.SortFunc(all, func(a, b seenEndpoint) int { return a.at.Compare(b.at) })
	return all
}

func (v nodeView) clusterList(ready, draining []seenEndpoint, local bool) string {
	if len(ready) == 0 {
		v.note("fallback", len(draining) > 0)
		return join(draining)
	}
	hinted := func(names func(seenEndpoint) []string, name string) []seenEndpoint {
		if slices.ContainsFunc(ready, func(e seenEndpoint) bool { return len(names(e)) == 0 }) {
			return nil
		}
		return choose(ready, func(e seenEndpoint) bool { return slices.Contains(names(e), name) })
	}
	foreign := slices.ContainsFunc(ready, func(e seenEndpoint) bool { return !slices.Equal(e.HintNodes, []string{e.Node}) })
	if nodes := hinted(func(e seenEndpoint) []string { return e.HintNodes }, v.node); len(nodes) > 0 && (!local || !foreign) {
		v.note("node", true)
		return join(nodes)
	}
	if zones := hinted(func(e seenEndpoint) []string { return e.HintZones }, v.zone); len(zones) > 0 {
		v.note("zone", true)
		return join(zones)
	}
	v.note("all", true)
	return join(ready)
}

func (v nodeView) localList(ready, draining []seenEndpoint) string {
	here := func(e seenEndpoint) bool { return e.Node == v.node }
	if l := choose(ready, here); len(l) > 0 {
		v.note("local", true)
		return join(l)
	}
	l := choose(draining, here)
	v.note("local fallback", len(l) > 0)
	return join(l)
}

func choose(all []seenEndpoint, is func(seenEndpoint) bool) []seenEndpoint {
	return slices.DeleteFunc(slices.Clone(all), func(e seenEndpoint) bool { return !is(e) })
}

func join(eps []seenEndpoint) string {
	var texts []string
	for _, e := range eps {
		texts = append(texts, e.at.String())
	}
	return strings.Join(texts, " ")
}

func listed(bs []fwd.Backend) string {
	var texts []string
	for _, b := range bs {
		texts = append(texts, b.Addr.String())
	}
	return strings.Join(texts, " ")
}
