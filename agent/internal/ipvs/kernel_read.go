package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/proto/fwd"
)

// snapshot is what the kernel holds at one time.
type snapshot struct {
	// has are our objects, and virtual servers of whomever: see ours.
	has state
	// missingSets are sets that do not exist.
	missingSets []object
	// local are the addresses on devices, sorted.
	local []netip.Addr
}

// read reads the kernel's state of some families. It returns soon after ctx ends.
func (k *kernel) read(ctx context.Context, families []fwd.Family) (*snapshot, error) {
	s := &snapshot{has: state{}}
	for _, f := range families {
		for _, of := range setKinds() {
			if err := ctx.Err(); err != nil {
				return nil, err //nolint:wrapcheck // the caller's own
			}
			if err := k.readSet(s, of, f); err != nil {
				return nil, err
			}
		}
		if err := k.readRoutes(s, f); err != nil {
			return nil, err
		}
		if err := k.readAddresses(s, f); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(s.local, netip.Addr.Compare)
	s.local = slices.Compact(s.local)
	return s, k.readServers(ctx, s, families)
}

func (k *kernel) readSet(s *snapshot, of kind, f fwd.Family) error {
	list, err := k.list(of, f)
	if errors.Is(err, unix.ENOENT) {
		s.missingSets = append(s.missingSets, object{kind: of, addr: netip.AddrPortFrom(anyAddr(f), 0)})
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ipset %s: %w", setName(of, f), err)
	}
	if list.TypeName != setType(of) {
		return fmt.Errorf("read ipset %s: it is a %s, somebody else's: want %s, remove it", setName(of, f), list.TypeName, setType(of))
	}
	for _, e := range list.Entries {
		if o, ok := memberOf(of, e); ok {
			h := held{}
			if e.Mark != nil {
				h.mark = *e.Mark
			}
			s.has[o] = h
		}
	}
	return nil
}

// list reads a set; the library logs a complaint about each member with a mark.
func (k *kernel) list(of kind, f fwd.Family) (*netlink.IPSetResult, error) {
	if of == localPort {
		return k.marked.list(setName(of, f))
	}
	return k.links.IpsetList(setName(of, f)) //nolint:wrapcheck // the caller names the set
}

// anyAddr stands for a family.
func anyAddr(f fwd.Family) netip.Addr {
	if f == fwd.IPv6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// memberOf names a member as object; false for what is of no use to us.
func memberOf(of kind, e netlink.IPSetEntry) (object, bool) {
	o := object{kind: of}
	port := uint16(0)
	if of != protected {
		if e.Port == nil || e.Protocol == nil {
			return o, false
		}
		port, o.protocol = *e.Port, protocolOf(*e.Protocol)
	}
	var ok bool
	if o.addr, ok = addrPort(e.IP, port); !ok {
		return o, false
	}
	if of == allowed {
		source, ok := netip.AddrFromSlice(e.IP2)
		if !ok {
			return o, false
		}
		bits := int(e.CIDR2)
		if bits == 0 {
			bits = source.BitLen() // the kernel leaves out the length of a whole address
		}
		o.source = netip.PrefixFrom(source, bits)
	}
	return o, true
}

// protocolOf is the inverse of Protocol.IANA; 0 for what no Service has.
func protocolOf(number uint8) fwd.Protocol {
	for _, p := range fwd.Protocols() {
		if p.IANA() == number {
			return p
		}
	}
	return 0
}

// settled lists again while others change what is listed, a few times: then it takes the list as it is.
func settled[T any](list func() ([]T, error)) (all []T, err error) {
	for range 5 {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, nil
}

func (k *kernel) readRoutes(s *snapshot, f fwd.Family) error {
	filter := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: routeProtocol}
	routes, err := settled(func() ([]netlink.Route, error) {
		return k.links.RouteListFiltered(int(addressFamily(f)), filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return fmt.Errorf("read %v routes: %w", f, err)
	}
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		if at, ok := addrPort(r.Dst.IP, 0); ok {
			source, _ := netip.AddrFromSlice(r.Src)
			s.has[object{kind: route, addr: at}] = held{traits: traits{source: source}}
		}
	}
	return nil
}

func (k *kernel) readAddresses(s *snapshot, f fwd.Family) error {
	addrs, err := settled(func() ([]netlink.Addr, error) { return k.links.AddrList(nil, int(addressFamily(f))) })
	if err != nil {
		return fmt.Errorf("read %v addresses: %w", f, err)
	}
	for _, a := range addrs {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			s.local = append(s.local, ip)
		}
	}
	return nil
}

// readServers leaves out what goes while it reads.
func (k *kernel) readServers(ctx context.Context, s *snapshot, families []fwd.Family) error {
	if k.servers == nil {
		return nil
	}
	all, err := k.servers.GetServices()
	if err != nil {
		return fmt.Errorf("read virtual servers: %w", err)
	}
	for _, v := range all {
		o, ok := serverOf(v)
		if !ok || !slices.Contains(families, o.family()) {
			continue
		}
		h := held{traits: traits{scheduler: v.SchedName}}
		if v.Flags&persistent != 0 {
			h.affinity = v.Timeout
		}
		if err := ctx.Err(); err != nil {
			return err //nolint:wrapcheck // the caller's own
		}
		if h.weights, err = k.readWeights(v); errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
			continue
		} else if err != nil {
			return err
		}
		s.has[o] = h
	}
	return nil
}

// serverOf names a virtual server as object; false for what no Service can have.
func serverOf(v *ipvs.Service) (object, bool) {
	if v.FWMark != 0 {
		f := fwd.IPv4
		if v.AddressFamily == unix.AF_INET6 {
			f = fwd.IPv6
		}
		return markServer(f, v.FWMark)
	}
	at, ok := addrPort(v.Address, v.Port)
	o := object{kind: server, protocol: protocolOf(uint8(v.Protocol)), addr: at}
	return o, ok && o.protocol != 0
}

func (k *kernel) readWeights(v *ipvs.Service) (map[netip.AddrPort]int, error) {
	all, err := k.servers.GetDestinations(v)
	if err != nil {
		return nil, fmt.Errorf("read real servers: %w", err)
	}
	weights := map[netip.AddrPort]int{}
	for _, d := range all {
		if a, ok := addrPort(d.Address, d.Port); ok {
			weights[a] = d.Weight
		}
	}
	return weights, nil
}

// ours leaves those virtual servers out that are somebody else's: neither wanted, nor in a set of ours, nor known. One that has
// a mark of ours is ours.
func (s *snapshot) ours(c Config, wanted func(object) bool) state {
	mine := state{}
	for o, h := range s.has {
		if o.kind == server && (c.excluded(o.addr.Addr()) || !wanted(o) && !s.marked(o)) {
			continue
		}
		mine[o] = h
	}
	return mine
}

// marked reports whether a virtual server is a member of one of the sets that tell ours.
func (s *snapshot) marked(o object) bool {
	for _, class := range classes() {
		o.kind = class
		if _, ok := s.has[o]; ok {
			return true
		}
	}
	return false
}
