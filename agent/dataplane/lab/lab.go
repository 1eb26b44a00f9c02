package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// PodBridge is the device of the node that its Pods are behind, for detect-local by device.
const PodBridge = "cbr0"

// Lab is a node, its Pods, Pods of another node, and the world outside. Methods may be called from any goroutine.
type Lab struct {
	// Node is where the backend works.
	Node            *Namespace
	outside, remote *Namespace
	// ports are those of conversations.
	ports ports

	mu sync.Mutex
	// mu guards pods: one namespace for each number of a Pod, with its address of both families.
	pods map[byte]*Namespace
}

// New builds a lab. Close it in the end.
func New() (*Lab, error) {
	l := &Lab{pods: map[byte]*Namespace{}}
	for _, n := range []**Namespace{&l.Node, &l.outside, &l.remote} {
		ns, err := NewNamespace()
		if err != nil {
			return nil, err
		}
		*n = ns
	}
	for _, step := range []func() error{
		func() error { return connect(l.Node, "up0", l.outside, "node0") },
		func() error { return connect(l.Node, "up1", l.remote, "node0") },
		l.bridge,
		func() error { return l.addresses(fwd.IPv4) },
		func() error { return l.addresses(fwd.IPv6) },
		l.warmUp,
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("build lab: %w", err)
		}
	}
	return l, nil
}

// bridge makes the node a router with a bridge for its Pods, as CNI's bridge plugin does with hairpin mode.
func (l *Lab) bridge() error {
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: PodBridge}}
	if err := l.Node.links.LinkAdd(br); err != nil {
		return fmt.Errorf("add %s: %w", PodBridge, err)
	}
	for _, sysctl := range []string{
		"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding",
		// Pods of one bridge would answer each other past the node's address translation.
		"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
	} {
		if err := l.Node.Sysctl(sysctl, "1"); err != nil {
			return err
		}
	}
	return l.Node.links.LinkSetUp(br)
}

func (l *Lab) addresses(f fwd.Family) error {
	a := trace.Plan(f)
	wide := a.PodCIDR.Bits()
	everywhere := netip.PrefixFrom(a.Node, 0).Masked()
	host := f.Bits()
	for _, step := range []func() error{
		func() error { return l.Node.address("up0", netip.PrefixFrom(a.Node, wide)) },
		func() error { return l.Node.address("up1", netip.PrefixFrom(a.RemoteLink, wide)) },
		func() error { return l.Node.address(PodBridge, netip.PrefixFrom(a.PodGateway, wide)) },
		func() error { return l.outside.address("node0", netip.PrefixFrom(a.Outside, wide)) },
		func() error { return l.outside.address("node0", netip.PrefixFrom(a.Clients[trace.External], host)) },
		func() error { return l.remote.address("node0", netip.PrefixFrom(a.RemoteGateway, wide)) },
		func() error { return l.Node.route(everywhere, a.Outside) },
		func() error { return l.Node.route(a.RemoteCIDR, a.RemoteGateway) },
		func() error { return l.outside.route(everywhere, a.Node) },
		func() error { return l.remote.route(everywhere, a.RemoteLink) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) warmUp() error {
	for _, f := range fwd.Families() {
		a := trace.Plan(f)
		for _, pair := range [][2]netip.Addr{
			{a.Clients[trace.External], a.Node}, {a.Clients[trace.Remote], a.RemoteLink}, {a.Clients[trace.Pod], a.PodGateway},
		} {
			if err := l.warm(pair[0], pair[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close takes everything down.
func (l *Lab) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.pods {
		n.Close()
	}
	for _, n := range []*Namespace{l.Node, l.outside, l.remote} {
		n.Close()
	}
}

// Place returns the namespace that an address belongs to; the address is there afterwards.
func (l *Lab) Place(a netip.Addr) (*Namespace, error) {
	plan := trace.Plan(fwd.FamilyOf(a))
	host := netip.PrefixFrom(a, a.BitLen())
	switch {
	case a == plan.Node || a == plan.PodGateway || a == plan.RemoteLink:
		return l.Node, nil
	case plan.PodCIDR.Contains(a):
		return l.pod(a)
	case plan.RemoteCIDR.Contains(a):
		return l.remote, l.remote.address("node0", host)
	}
	return l.outside, l.outside.address("node0", host)
}

// pod returns the namespace of the Pod that has an address; both families of a number are one Pod.
func (l *Lab) pod(a netip.Addr) (*Namespace, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := a.AsSlice()
	number := b[len(b)-1]
	if n, ok := l.pods[number]; ok {
		return n, nil
	}
	n, err := NewNamespace()
	if err != nil {
		return nil, err
	}
	cable := "pod" + strconv.Itoa(int(number))
	if err := connect(l.Node, cable, n, "eth0"); err != nil {
		return nil, err
	}
	if err := l.join(cable); err != nil {
		return nil, err
	}
	for _, f := range fwd.Families() {
		plan := trace.Plan(f)
		own := plan.PodCIDR.Addr().AsSlice()
		own[len(own)-1] = number
		addr, _ := netip.AddrFromSlice(own)
		if err := n.address("eth0", netip.PrefixFrom(addr, plan.PodCIDR.Bits())); err != nil {
			return nil, err
		}
		if err := n.route(netip.PrefixFrom(addr, 0).Masked(), plan.PodGateway); err != nil {
			return nil, err
		}
	}
	l.pods[number] = n
	return n, nil
}

// join plugs a cable into the bridge, in hairpin mode: a Pod may reach itself.
func (l *Lab) join(cable string) error {
	link, err := l.Node.links.LinkByName(cable)
	if err != nil {
		return fmt.Errorf("find %s: %w", cable, err)
	}
	bridge, err := l.Node.links.LinkByName(PodBridge)
	if err != nil {
		return fmt.Errorf("find %s: %w", PodBridge, err)
	}
	if err := l.Node.links.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("plug %s in: %w", cable, err)
	}
	if err := l.Node.links.LinkSetHairpin(link, true); err != nil {
		return fmt.Errorf("set hairpin of %s: %w", cable, err)
	}
	return nil
}

// Inside returns the backend as it works in the namespace, whoever calls it. Make the backend there too, by Do.
func (n *Namespace) Inside(d dataplane.Interface) dataplane.Interface { return inside{d, n} }

type inside struct {
	dataplane.Interface
	node *Namespace
}

func (i inside) Sync(ctx context.Context, before, now *fwd.Table, delta dataplane.Delta) (r dataplane.Report, err error) {
	err = i.node.Do(func() error {
		r, err = i.Interface.Sync(ctx, before, now, delta)
		return err
	})
	return r, err
}

func (i inside) Audit() dataplane.Audit {
	var a dataplane.Audit
	err := i.node.Do(func() error {
		a = i.Interface.Audit()
		return nil
	})
	switch {
	case err != nil:
		return failed{err}
	case a == nil:
		return nil
	}
	return insideAudit{a, i.node}
}

type insideAudit struct {
	dataplane.Audit
	node *Namespace
}

func (a insideAudit) Read(ctx context.Context) error {
	return a.node.Do(func() error { return a.Audit.Read(ctx) })
}

// Starves implements dataplane.Starving.
func (a insideAudit) Starves() bool {
	s, ok := a.Audit.(dataplane.Starving)
	return ok && s.Starves()
}

// failed is an audit of a namespace that cannot be entered.
type failed struct{ err error }

func (f failed) Read(context.Context) error        { return f.err }
func (failed) Differences() []dataplane.Difference { return nil }

func (i inside) Cleanup(ctx context.Context) error {
	return i.node.Do(func() error { return i.Interface.Cleanup(ctx) })
}

func netParse(p netip.Prefix) (net.IP, *net.IPNet, error) {
	ip, n, err := net.ParseCIDR(p.String())
	if err != nil {
		return nil, nil, fmt.Errorf("parse %v: %w", p, err)
	}
	return ip, n, nil
}
