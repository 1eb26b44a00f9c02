package ipvs

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// delegated returns the part of a Service port that internal/iptables programs: its node port, external and load-balancer
// IPs under a Local policy, where clients outside and local ones are sent to different lists at one address.
func delegated(c Config, p *fwd.Port) (fwd.ServicePort, bool) {
	sp := p.ServicePort
	if !sp.ExternalLocal {
		return sp, false
	}
	sp.ClusterIP, sp.Scheduler = netip.Addr{}, ""
	sp.ExternalIPs = slices.DeleteFunc(slices.Clone(sp.ExternalIPs), c.excluded)
	sp.LoadBalancerIPs = slices.DeleteFunc(slices.Clone(sp.LoadBalancerIPs), c.excluded)
	return sp, sp.NodePort != 0 || len(sp.ExternalIPs)+len(sp.LoadBalancerIPs) > 0
}

// delegate returns the table of what is delegated. before is that of an earlier table; ids are the Service ports that differ
// since. It also returns what differs from before.
func delegate(c Config, before, now *fwd.Table, ids []fwd.ID) (*fwd.Table, fwd.Changed, error) {
	remove, put := map[fwd.Scope][]string{}, map[fwd.Scope][]fwd.Row{}
	for _, id := range ids {
		if p, ok := before.Port(id); ok {
			for s, rows := range rowsOf(p.ServicePort, p) {
				for _, r := range rows {
					remove[s] = append(remove[s], r.Key)
				}
			}
		}
		if p, ok := now.Port(id); ok {
			if sp, ok := delegated(c, p); ok {
				for s, rows := range rowsOf(sp, p) {
					put[s] = append(put[s], rows...)
				}
			}
		}
	}
	put[fwd.Node] = append(put[fwd.Node], fwd.EncodeNode(now.Node()))
	var change fwd.Change
	for _, s := range fwd.Scopes() {
		part := before.Part(s)
		if d := fwd.DiffParts(part, part.With(remove[s], put[s])); !d.Empty() {
			change.Parts[s] = &d
		}
	}
	return before.Apply(change)
}

// rowsOf encodes a Service port with the lists of p.
func rowsOf(sp fwd.ServicePort, p *fwd.Port) map[fwd.Scope][]fwd.Row {
	rows := map[fwd.Scope][]fwd.Row{fwd.Common: {fwd.EncodePort(sp)}}
	for _, s := range fwd.Scopes() {
		for _, b := range p.List(s) {
			rows[s] = append(rows[s], fwd.EncodeBackend(sp.ID(), b))
		}
	}
	return rows
}
