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
	// addr is a virtual IP and port; the port is 0 where the kind names an address alone.
	addr netip.AddrPort
	// source is the range of clients of an allowed entry.
	source netip.Prefix
}

// kind is a kind of object. Objects are added in this order and removed in the opposite one, so that no packet reaches a
// virtual server before what restricts it is there, nor a process of the host by a virtual IP. A virtual server is ours iff
// it is also a member of the set of its class, so that a later agent can tell: that comes before it and goes after it.
type kind uint8

const (
	allowed      kind = iota // member of a set: these clients may use a guarded port
	guarded                  // member of a set: only allowed clients may use the port
	dropped                  // member of a set: nobody here may use the port, but somebody elsewhere
	clusterPort              // member of a set: a virtual server at a cluster IP
	externalPort             // member of a set: a virtual server at another virtual IP, or a node port
	server                   // a virtual server
	protected                // member of a set: the address is local on our account, and takes no other traffic
	route                    // a route that makes the address local

	numKinds
)

// setName names the ipset of a kind and family.
func setName(k kind, f fwd.Family) string {
	names := [numKinds]string{
		allowed: "FL-ALLOWED", guarded: "FL-GUARDED", dropped: "FL-DROPPED", clusterPort: "FL-CLUSTER", externalPort: "FL-EXTERNAL",
		protected: "FL-PROTECTED",
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
	case guarded, dropped, clusterPort, externalPort, server, route, numKinds:
	}
	return "hash:ip,port"
}

// setKinds lists the kinds that are sets.
func setKinds() []kind {
	return []kind{allowed, guarded, dropped, clusterPort, externalPort, protected}
}

func (o object) compare(p object) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), o.addr.Compare(p.addr), cmp.Compare(o.protocol, p.protocol),
		o.source.Addr().Compare(p.source.Addr()), cmp.Compare(o.source.Bits(), p.source.Bits()))
}

func (o object) family() fwd.Family { return fwd.FamilyOf(o.addr.Addr()) }

// String names the object as ipvsadm, ipset and ip do.
func (o object) String() string {
	switch o.kind {
	case server:
		return fmt.Sprintf("ipvs %v %v", o.protocol, o.addr)
	case route:
		return fmt.Sprintf("route local %v", o.addr.Addr())
	case protected:
		return fmt.Sprintf("ipset %s %v", setName(o.kind, o.family()), o.addr.Addr())
	case allowed:
		return fmt.Sprintf("ipset %s %v,%v:%d,%v", setName(o.kind, o.family()), o.addr.Addr(), o.protocol, o.addr.Port(), o.source)
	case guarded, dropped, clusterPort, externalPort, numKinds:
	}
	return fmt.Sprintf("ipset %s %v,%v:%d", setName(o.kind, o.family()), o.addr.Addr(), o.protocol, o.addr.Port())
}

// value is what a plan says of an object besides its name; nothing for members of sets.
type value struct {
	// scheduler, affinity (seconds, 0 for none) and servers (sorted) are of virtual servers.
	scheduler string
	affinity  uint32
	servers   []netip.AddrPort
	// source is of routes: what local clients use as their own address; invalid: the virtual IP itself.
	source netip.Addr
}

// held is what the kernel has of an object. For virtual servers it holds weights; 0 is a real server that is going.
type held struct {
	scheduler string
	affinity  uint32
	weights   map[netip.AddrPort]int
	source    netip.Addr
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
