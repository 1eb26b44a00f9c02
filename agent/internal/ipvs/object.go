package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/proto/fwd"
)

// object names one thing in the kernel. It is comparable; fields that its kind does not need are zero.
type object struct {
	kind     kind
	protocol fwd.Protocol
	// addr is a virtual IP and port; the port is 0 where the kind names an address alone. Where it names none, the IP is that
	// of anyAddr, for the family.
	addr netip.AddrPort
	// mark is of shortcuts.
	mark uint32
	// source is the range of clients of an allowed entry.
	source netip.Prefix
}

// kind is a kind of object. Objects are added in this order and removed in the opposite one, so that no packet reaches a
// virtual server before what restricts it is there, nor a process of the host by a virtual IP. A virtual server is ours iff
// it is also a member of the set of its class, so that a later agent can tell: that comes before it and goes after it. One by
// mark is ours iff its mark is.
type kind uint8

const (
	health       kind = iota // member of a set: a port for checks of the node's health by load balancers
	allowed                  // member of a set: these clients may use a guarded port
	guarded                  // member of a set: only allowed clients may use the port
	dropped                  // member of a set: nobody here may use the port, but somebody elsewhere
	clusterPort              // member of a set: a virtual server at a cluster IP
	externalPort             // member of a set: a virtual server at another virtual IP, or a node port
	shortcut                 // a virtual server by mark, for local clients of ports under a Local policy
	localPort                // as externalPort, under a Local policy; the member says which mark local clients get
	server                   // a virtual server
	protected                // member of a set: the address is local on our account, and takes no other traffic
	route                    // a route that makes the address local

	numKinds
)

// setName names the ipset of a kind and family.
func setName(k kind, f fwd.Family) string {
	names := [numKinds]string{
		health: "FL-HEALTH", allowed: "FL-ALLOWED", guarded: "FL-GUARDED", dropped: "FL-DROPPED", clusterPort: "FL-CLUSTER", externalPort: "FL-EXTERNAL",
		localPort: "FL-LOCAL", protected: "FL-PROTECTED",
	}
	return names[k] + "-" + f.String()
}

// setType is the kernel's name for what is in the sets of a kind.
func setType(k kind) string {
	switch k {
	case allowed:
		return "hash:ip,port,net"
	case protected:
		return "hash:ip"
	case health, guarded, dropped, clusterPort, externalPort, localPort, shortcut, server, route, numKinds:
	}
	return "hash:ip,port"
}

// setKinds lists the kinds that are sets.
func setKinds() []kind {
	return []kind{health, allowed, guarded, dropped, clusterPort, externalPort, localPort, protected}
}

// classes lists the kinds of sets whose members are virtual servers.
func classes() []kind { return []kind{clusterPort, externalPort, localPort} }

// serves reports whether objects of the kind are virtual servers.
func (k kind) serves() bool { return k == server || k == shortcut }

func (o object) compare(p object) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), o.addr.Compare(p.addr), cmp.Compare(o.protocol, p.protocol),
		o.source.Addr().Compare(p.source.Addr()), cmp.Compare(o.source.Bits(), p.source.Bits()), cmp.Compare(o.mark, p.mark))
}

func (o object) family() fwd.Family { return fwd.FamilyOf(o.addr.Addr()) }

// String names the object as ipvsadm, ipset and ip do.
func (o object) String() string {
	switch o.kind {
	case server:
		return fmt.Sprintf("ipvs %v %v", o.protocol, o.addr)
	case shortcut:
		return fmt.Sprintf("ipvs %v fwmark %#x %v", o.protocol, o.mark, o.family())
	case route:
		return fmt.Sprintf("route local %v", o.addr.Addr())
	case protected:
		return fmt.Sprintf("ipset %s %v", setName(o.kind, o.family()), o.addr.Addr())
	case allowed:
		return fmt.Sprintf("ipset %s %v,%v:%d,%v", setName(o.kind, o.family()), o.addr.Addr(), o.protocol, o.addr.Port(), o.source)
	case health, guarded, dropped, clusterPort, externalPort, localPort, numKinds:
	}
	return fmt.Sprintf("ipset %s %v,%v:%d", setName(o.kind, o.family()), o.addr.Addr(), o.protocol, o.addr.Port())
}

// traits are what an object is besides its name and its real servers; fields that its kind does not need are zero.
type traits struct {
	// scheduler and affinity (seconds, 0 for none) are of virtual servers.
	scheduler string
	affinity  uint32
	// source is of routes: what local clients use as their own address; invalid: the virtual IP itself.
	source netip.Addr
	// mark is of localPorts: what packets of local clients get; 0: they keep theirs.
	mark uint32
}

// value is what a plan says of an object besides its name.
type value struct {
	traits
	// servers are the real servers of a virtual server, sorted.
	servers []netip.AddrPort
}

// held is what the kernel has of an object. For virtual servers it holds weights; 0 is a real server that is going.
type held struct {
	traits
	weights map[netip.AddrPort]int
}

// draining reports whether a real server is going.
func (h held) draining() bool {
	for _, w := range h.weights {
		if w == 0 {
			return true
		}
	}
	return false
}

// state is what the kernel is known to hold.
type state map[object]held

// sorted returns the objects of a set in their order.
func sorted[V any](objects map[object]V) []object {
	list := make([]object, 0, len(objects))
	for o := range objects {
		list = append(list, o)
	}
	slices.SortFunc(list, object.compare)
	return list
}
