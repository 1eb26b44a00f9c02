package ipvs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/proto/fwd"
)

// ErrNoIPVS says that the kernel lacks what this mode needs, or that it is not for us.
var ErrNoIPVS = errors.New("the kernel cannot do IPVS mode")

// lacks is an ErrNoIPVS that names what is missing.
func lacks(what, module string) error {
	return fmt.Errorf("%w: it has no %s: load its module %s, or use another mode", ErrNoIPVS, what, module)
}

// noScheduler says that the kernel lacks a scheduler.
type noScheduler struct{ name string }

func (e noScheduler) Error() string {
	return fmt.Sprintf("the kernel has no IPVS scheduler %q", e.name)
}

// Flags and netmasks of virtual servers (linux/ip_vs.h); a netmask of a full address makes clients persist one by one.
const (
	persistent     = 0x1
	hostNetmask    = 0xffffffff
	hostNetmaskIP6 = 128
)

// routeProtocol marks our routes among those of others (see /etc/iproute2/rt_protos: nobody there has this number).
const routeProtocol = 70

// maxMembers is how many members a set may have; the default of 65,536 is too few for NodePorts on many addresses.
const maxMembers = 1 << 22

// kernel speaks netlink to the network namespace that it was opened in.
type kernel struct {
	// servers is nil where IPVS was not looked for, or is not there.
	servers *ipvs.Handle
	links   *netlink.Handle
	// marked writes and reads the sets whose members carry marks.
	marked *markedSets
	// loopback is the index of the device that local routes name.
	loopback int
	// procSys is the folder of kernel parameters.
	procSys string
	// around runs each change: a seam for tests, which let some fail.
	around func(change func() error) error
}

// openKernel fails with ErrNoIPVS. It loads the module if it can.
func openKernel(ctx context.Context, procSys string) (*kernel, error) {
	if err := probe(ctx, serverList); err != nil {
		return nil, err
	}
	k, err := openLinks(procSys)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, lacks("netfilter over netlink", "nfnetlink")
	}
	if err != nil {
		return nil, err
	}
	if !k.hasSets() {
		k.close()
		return nil, lacks("ipset", "ip_set")
	}
	if err := k.openServers(); err != nil {
		return nil, err
	}
	return k, nil
}

// openLinks opens what every kernel has: no IPVS yet.
func openLinks(procSys string) (*kernel, error) {
	links, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	marked, err := openMarkedSets()
	if err != nil {
		links.Close()
		return nil, err
	}
	k := &kernel{links: links, marked: marked, procSys: procSys, around: func(change func() error) error { return change() }}
	lo, err := links.LinkByName("lo")
	if err != nil {
		k.close()
		return nil, fmt.Errorf("find loopback device: %w", err)
	}
	k.loopback = lo.Attrs().Index
	return k, nil
}

// openServers opens IPVS, which has to be there: see probe. After an error the kernel is closed.
func (k *kernel) openServers() error {
	servers, err := ipvs.New("")
	if err != nil {
		k.close()
		return fmt.Errorf("open IPVS: %w", err)
	}
	k.servers = servers
	return nil
}

// hasSets reports whether the kernel has ipset.
func (k *kernel) hasSets() bool {
	_, _, err := k.links.IpsetProtocol()
	return err == nil
}

func (k *kernel) close() {
	if k.servers != nil {
		k.servers.Close()
	}
	k.links.Close()
	k.marked.close()
}

// Where the kernel lists its virtual servers, and its IPv6 addresses: what is not there, the kernel has not.
const (
	serverList  = "/proc/net/ip_vs"
	addressList = "/proc/net/if_inet6"
)

// probe fails with ErrNoIPVS where the list of virtual servers is missing, also after loading the module. The library
// would go on without it, and panic later.
func probe(ctx context.Context, list string) error {
	if _, err := os.Stat(list); err == nil {
		return nil
	}
	loading := exec.CommandContext(ctx, "modprobe", "ip_vs").Run()
	if _, err := os.Stat(list); errors.Is(err, fs.ErrNotExist) {
		if loading != nil {
			return fmt.Errorf("%w (modprobe ip_vs: %w)", lacks("IPVS", "ip_vs"), loading)
		}
		return lacks("IPVS", "ip_vs")
	} else if err != nil {
		return fmt.Errorf("look for IPVS: %w", err)
	}
	return nil
}

// usable leaves out IPv6 where the kernel has none.
func usable(families []fwd.Family, list string) []fwd.Family {
	if _, err := os.Stat(list); errors.Is(err, fs.ErrNotExist) {
		return slices.DeleteFunc(slices.Clone(families), func(f fwd.Family) bool { return f == fwd.IPv6 })
	}
	return families
}

// do carries out one operation. Real servers of TCP that have connections stay with weight 0: gone is false then. What is
// there already, or is gone already, is no error.
func (k *kernel) do(op operation) (gone bool, err error) {
	err = k.around(func() (err error) {
		switch {
		case op.object.kind == route:
			err = k.route(op)
		case !op.object.kind.serves():
			err = k.member(op)
		case op.real.IsValid():
			gone, err = k.realServer(op)
		default:
			err = k.virtualServer(op)
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("write %v %v: %w", op.object, op.real, err)
	}
	return gone, nil
}

func (k *kernel) virtualServer(op operation) error {
	s := service(op.object, op.value)
	var err error
	switch op.verb {
	case create:
		if err = k.servers.NewService(s); errors.Is(err, unix.EEXIST) {
			err = k.servers.UpdateService(s)
		}
	case change:
		err = k.servers.UpdateService(s)
	case remove:
		return k.removeServer(s)
	}
	if errors.Is(err, unix.ENOENT) {
		return noScheduler{op.value.scheduler}
	}
	return err
}

func (k *kernel) removeServer(s *ipvs.Service) error {
	return unless(k.servers.DelService(s), unix.ESRCH, unix.ENOENT)
}

// realServer changes one of a virtual server. A gentle removal first keeps new connections away, and looks for others then.
func (k *kernel) realServer(op operation) (gone bool, err error) {
	s := service(op.object, op.value)
	d := &ipvs.Destination{Address: op.real.Addr().AsSlice(), Port: op.real.Port(), Weight: op.weight, AddressFamily: addressFamily(op.object.family())}
	switch {
	case op.verb == create:
		if err := k.servers.NewDestination(s, d); !errors.Is(err, unix.EEXIST) {
			return false, err
		}
		return false, k.servers.UpdateDestination(s, d)
	case op.verb == change:
		return false, k.servers.UpdateDestination(s, d)
	case op.gentle:
		if op.weight != 0 {
			d.Weight = 0
			if err := k.servers.UpdateDestination(s, d); err != nil {
				return errors.Is(err, unix.ENOENT), unless(err, unix.ENOENT)
			}
		}
		if busy, err := k.busy(op); busy || err != nil {
			return false, err
		}
	}
	return true, unless(k.servers.DelDestination(s, d), unix.ENOENT)
}

// busy reports whether a real server has connections, also such as have ended but may see late packets.
func (k *kernel) busy(op operation) (bool, error) {
	all, err := k.servers.GetDestinations(service(op.object, value{}))
	if err != nil {
		return false, fmt.Errorf("read real servers: %w", err)
	}
	for _, d := range all {
		if a, ok := addrPort(d.Address, d.Port); ok && a == op.real {
			return d.ActiveConnections+d.InactiveConnections > 0, nil
		}
	}
	return false, nil
}

// service is the library's form of a virtual server. With a mark, that is all that the kernel looks at.
func service(o object, v value) *ipvs.Service {
	s := &ipvs.Service{
		Address: o.addr.Addr().AsSlice(), Port: o.addr.Port(), Protocol: uint16(o.protocol.IANA()), AddressFamily: addressFamily(o.family()),
		FWMark: o.mark, SchedName: v.scheduler, Netmask: hostNetmask,
	}
	if o.family() == fwd.IPv6 {
		s.Netmask = hostNetmaskIP6
	}
	if v.affinity > 0 {
		s.Flags, s.Timeout = persistent, v.affinity
	}
	return s
}

func (k *kernel) route(op operation) error {
	r := k.localRoute(op.object.addr.Addr())
	if op.verb == remove {
		return unless(k.links.RouteDel(r), unix.ESRCH)
	}
	if op.value.source.IsValid() {
		r.Src = op.value.source.AsSlice()
	}
	return k.links.RouteReplace(r)
}

// localRoute makes an address the host's own, without a device that carries it: an address on a device costs more, the
// more of them there are.
func (k *kernel) localRoute(a netip.Addr) *netlink.Route {
	return &netlink.Route{
		Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, LinkIndex: k.loopback, Protocol: routeProtocol,
		Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
	}
}

// member adds to a set, or takes from it.
func (k *kernel) member(op operation) error {
	o := op.object
	name, protocol, port := setName(o.kind, o.family()), o.protocol.IANA(), o.addr.Port()
	e := &netlink.IPSetEntry{IP: o.addr.Addr().AsSlice(), Replace: true}
	if o.kind != protected {
		e.Protocol, e.Port = &protocol, &port
	}
	if o.kind == allowed {
		e.IP2, e.CIDR2 = o.source.Addr().AsSlice(), uint8(o.source.Bits())
	}
	switch {
	case op.verb == remove:
		return k.links.IpsetDel(name, e)
	case o.kind == localPort:
		return k.marked.put(name, markedMember{o.protocol, o.addr, op.value.mark})
	}
	return k.links.IpsetAdd(name, e)
}

// createSet makes an empty set.
func (k *kernel) createSet(of kind, f fwd.Family) error {
	return k.around(func() error {
		options := netlink.IpsetCreateOptions{Family: uint8(addressFamily(f)), MaxElements: maxMembers, Skbinfo: of == localPort}
		err := k.links.IpsetCreate(setName(of, f), setType(of), options)
		if err != nil {
			return fmt.Errorf("create ipset %s: %w", setName(of, f), err)
		}
		return nil
	})
}

func addressFamily(f fwd.Family) uint16 {
	if f == fwd.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// addrPort converts the library's form of an address, whose slice has the length of its family.
func addrPort(ip net.IP, port uint16) (netip.AddrPort, bool) {
	a, ok := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a, port), ok
}

// unless returns err, and nil for those that mean that nothing is left to do.
func unless(err error, fine ...error) error {
	for _, f := range fine {
		if errors.Is(err, f) {
			return nil
		}
	}
	return err
}
