package ipvs

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// verb is what is done to an object or a real server.
type verb uint8

const (
	create verb = iota
	change      // an object: its traits; a real server: its weight
	remove      // a real server of TCP: only when its connections have ended
)

// operation is one step towards the plan.
type operation struct {
	verb   verb
	object object
	// value is what an object that is created or changed should be.
	value value
	// real is the real server that is meant, of a virtual server that is there; invalid: the object itself.
	real netip.AddrPort
	// weight is what it should have; gentle: it may have connections, for which it stays at weight 0.
	weight int
	gentle bool
}

// steps are the operations of one Sync: first those that bring what is wanted, then those that take away whole objects.
type steps struct{ first, last []operation }

// diff compares the plan of some objects with what the kernel has of them.
func diff(l *layout, has state, touched map[object]bool) steps {
	var s steps
	objects := sorted(touched)
	for _, o := range objects {
		want, ok := l.value(o)
		if !ok {
			continue
		}
		now, there := has[o]
		switch {
		case !there:
			s.first = append(s.first, operation{verb: create, object: o, value: want})
		case now.traits != want.traits:
			s.first = append(s.first, operation{verb: change, object: o, value: want})
		}
		s.first = append(s.first, diffServers(o, want, now)...)
	}
	for _, o := range slices.Backward(objects) {
		_, there := has[o]
		if _, ok := l.value(o); !ok && there {
			s.last = append(s.last, operation{verb: remove, object: o})
		}
	}
	return s
}

// diffServers brings the real servers of a virtual server before it takes others away.
func diffServers(o object, want value, now held) []operation {
	var ops []operation
	for _, r := range want.servers {
		switch weight, there := now.weights[r]; {
		case !there:
			ops = append(ops, operation{verb: create, object: o, real: r, weight: 1})
		case weight != 1:
			ops = append(ops, operation{verb: change, object: o, real: r, weight: 1})
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(now.weights), netip.AddrPort.Compare) {
		if _, wanted := slices.BinarySearchFunc(want.servers, r, netip.AddrPort.Compare); wanted {
			continue
		}
		ops = append(ops, operation{verb: remove, object: o, real: r, gentle: o.protocol == fwd.TCP, weight: now.weights[r]})
	}
	return ops
}

// realise notes that the kernel has done an operation on an object, or on a real server.
func (s state) realise(op operation) {
	o := op.object
	if !op.real.IsValid() {
		switch op.verb {
		case remove:
			delete(s, o)
		case create, change:
			s[o] = held{op.value.traits, s[o].weights}
		}
		return
	}
	h := s[o]
	if h.weights == nil {
		h.weights = map[netip.AddrPort]int{}
	}
	switch op.verb {
	case remove:
		delete(h.weights, op.real)
	case create, change:
		h.weights[op.real] = op.weight
	}
	s[o] = h
}
