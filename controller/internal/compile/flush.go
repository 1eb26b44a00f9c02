package compile

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/proto/fwd"
)

// flushServices takes the noted Services over and returns those whose rows may differ now: they themselves, and whoever
// shares a claim or an address with them.
func (c *Compiler) flushServices() map[*service]struct{} {
	dirty := map[*service]struct{}{}
	touched := map[claim]struct{}{}
	for name, in := range c.pendingServices {
		s := c.services[name]
		switch {
		case s == nil && in == nil:
			continue
		case s == nil:
			s = &service{name: name}
			c.services[name] = s
		case in == nil:
			in = &input{}
			delete(c.services, name)
		}
		c.update(s, in, touched)
		dirty[s] = struct{}{}
	}
	c.pendingServices = map[serviceName]*input{} // cleared, the map of a first list would stay slow to walk
	for k := range touched {
		for _, p := range c.registry[k] {
			dirty[p.of] = struct{}{}
		}
		if k.kind == claimVirtualIP {
			for _, s := range c.located[k.addr.Addr()] {
				dirty[s] = struct{}{}
			}
		}
	}
	return dirty
}

// update gives a Service its new input: claims and locations are registered, rows are left for compile.
func (c *Compiler) update(s *service, in *input, touched map[claim]struct{}) {
	c.locate(s, in.eps)
	renewed := s.age != in.age
	if renewed {
		s.reported = nil
	}
	before := s.live
	s.live = make([]*port, 0, len(in.ports))
	s.input = *in
	s.ports = nil // each port keeps its own
	for _, want := range in.ports {
		for len(before) > 0 && before[0].want.PortName.Compare(want.PortName) < 0 {
			c.drop(before[0], touched)
			before = before[1:]
		}
		var p *port
		if len(before) > 0 && before[0].want.PortName == want.PortName {
			p, before = before[0], before[1:]
		} else {
			p = &port{of: s, id: c.idOf(want.PortName)}
		}
		c.ask(p, want, renewed, touched)
		s.live = append(s.live, p)
	}
	for _, p := range before {
		c.drop(p, touched)
	}
}

// ask registers what a Service port claims now.
func (c *Compiler) ask(p *port, want fwd.ServicePort, renewed bool, touched map[claim]struct{}) {
	if !renewed && reflect.DeepEqual(p.want, want) {
		return
	}
	p.want = want
	claims := claimsOf(&want, p.id)
	merge(p.claims, claims, compareClaims, func(was, is *claim) {
		switch {
		case is == nil:
			c.registry.remove(*was, p)
			touched[*was] = struct{}{}
		case was == nil:
			c.registry.add(*is, p)
			touched[*is] = struct{}{}
		default:
			touched[*is] = struct{}{} // its right to the claim may be another now: other age, other cluster IP
		}
	})
	p.claims = claims
}

// drop takes a Service port out of the registry and leaves its rows to compile.
func (c *Compiler) drop(p *port, touched map[claim]struct{}) {
	for _, k := range p.claims {
		c.registry.remove(k, p)
		touched[k] = struct{}{}
	}
	p.of.dropped = append(p.of.dropped, p)
}

// locate registers the addresses of a Service's endpoints.
func (c *Compiler) locate(s *service, eps []endpoints.Endpoint) {
	merge(addresses(s.eps), addresses(eps), netip.Addr.Compare, func(was, is *netip.Addr) {
		switch {
		case is == nil:
			left := slices.DeleteFunc(c.located[*was], func(t *service) bool { return t == s })
			if len(left) == 0 {
				delete(c.located, *was)
			} else {
				c.located[*was] = left
			}
		case was == nil:
			c.located[*is] = append(c.located[*is], s)
		}
	})
}

// addresses returns the distinct addresses of sorted endpoints.
func addresses(eps []endpoints.Endpoint) []netip.Addr {
	as := make([]netip.Addr, len(eps))
	for i := range eps {
		as[i] = eps[i].Addr
	}
	return slices.Compact(as)
}

// compile brings a Service's rows up to date and returns the problems that are new.
func (c *Compiler) compile(s *service, zones []string, out edits) []Problem {
	for _, p := range s.dropped {
		p.emit(fwd.Row{}, nil, out)
	}
	s.dropped = nil
	delete(c.topological, s)
	findings := endpoints.Findings{}
	for _, p := range s.live {
		sp, ok := c.registry.grant(p, findings)
		if !ok {
			p.emit(fwd.Row{}, nil, out)
			continue
		}
		sp, lists := distribute(sp, c.reachable(&sp, s.eps, findings), zones)
		if sp.ClusterScope != fwd.Common {
			c.topological[s] = struct{}{}
		}
		p.emit(fwd.EncodePort(sp), lists, out)
	}
	return s.report(slices.Concat(s.problems, findings.Problems()))
}

// reachable returns the endpoints of a Service port but those that are a virtual IP, protocol and port of ours: traffic to
// such a one would be forwarded again, perhaps for ever, or past the policy of the Service that has it.
func (c *Compiler) reachable(sp *fwd.ServicePort, eps []endpoints.Endpoint, findings endpoints.Findings) []candidate {
	return slices.DeleteFunc(candidates(sp, eps), func(e candidate) bool {
		claimants := c.registry[virtualIPClaim(e.addr, sp.Protocol)]
		if len(claimants) == 0 {
			return false
		}
		findings.Add(endpoints.Finding{Reason: ReasonEndpointIsVirtualIP, Text: "endpoints left out, since they are virtual IPs and ports of Services"},
			"%v/%v", e.addr, sp.Protocol)
		return true
	})
}

// report remembers a Service's problems and returns those that it did not have before.
func (s *service) report(found []endpoints.Problem) []Problem {
	var fresh []Problem
	reported := make(map[endpoints.Problem]struct{}, len(found))
	for _, p := range found {
		if _, known := s.reported[p]; !known {
			fresh = append(fresh, Problem{Namespace: s.name.namespace, Name: s.name.name, UID: s.age.uid, Reason: p.Reason, Message: p.Message})
		}
		reported[p] = struct{}{}
	}
	s.reported = reported
	slices.SortFunc(fresh, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(fresh)
}

// emit notes what separates the rows that are out from those that are due.
func (p *port) emit(row fwd.Row, lists []list, out edits) {
	out.replace(fwd.Audience{Scope: fwd.Common}, p.row, row)
	p.row = row
	id := p.want.ID()
	merge(p.lists, lists, func(a, b list) int { return a.audience.Compare(b.audience) }, func(was, is *list) {
		var before, after []fwd.Backend
		var audience fwd.Audience
		if was != nil {
			before, audience = was.backends, was.audience
		}
		if is != nil {
			after, audience = is.backends, is.audience
		}
		merge(before, after, compareBackends, func(was, is *fwd.Backend) {
			switch {
			case is == nil:
				out.of(audience).removed(fwd.BackendKey(id, was.Addr))
			case was == nil || *was != *is:
				out.of(audience).put(fwd.EncodeBackend(id, *is))
			}
		})
	})
	p.lists = lists
}
