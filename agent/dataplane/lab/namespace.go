// Package lab builds a node and its surroundings out of network namespaces, for tests that send real packets through a
// backend: a node with Pods behind a bridge, another node's Pods, and the world outside, in both families.
//
// Input are the cases of package trace and a backend, output is what became of each packet. Nothing leaves the namespaces:
// they are connected to each other only, and vanish with the test process. It needs root. Its neighbours are package
// trace, whose addresses it lays out, and the tests of the backends.
package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that lives until Close.
type Namespace struct {
	handle netns.NsHandle
	links  *netlink.Handle

	mu sync.Mutex
	// mu guards addrs: the addresses given so far.
	addrs map[netip.Prefix]bool
}

// NewNamespace makes a namespace with its loopback device up, without duplicate address detection.
func NewNamespace() (*Namespace, error) {
	n := &Namespace{addrs: map[netip.Prefix]bool{}}
	err := onOwnThread(func() error {
		var err error
		if n.handle, err = netns.New(); err != nil {
			return fmt.Errorf("make namespace: %w", err)
		}
		for name, value := range map[string]string{
			"net/ipv6/conf/default/accept_dad": "0", "net/ipv6/conf/all/accept_dad": "0",
			"net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
			// Refusals are counted in tests, so none may be left out.
			"net/ipv4/icmp_ratelimit": "0", "net/ipv6/icmp/ratelimit": "0", "net/ipv4/icmp_msgs_per_sec": "100000",
		} {
			if err := writeSysctl(name, value); err != nil {
				return err
			}
		}
		if n.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		lo, err := n.links.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		return n.links.LinkSetUp(lo)
	})
	return n, err
}

// Close lets go of the namespace; it vanishes when nothing runs in it and no socket of it is open.
func (n *Namespace) Close() {
	n.links.Close()
	_ = n.handle.Close()
}

// Do runs a function in the namespace: sockets that it opens and processes that it starts belong there. Goroutines that
// it starts do not.
func (n *Namespace) Do(fn func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter namespace: %w", err)
		}
		return fn()
	})
}

// Sysctl sets a kernel parameter of the namespace; the name is its path below /proc/sys.
func (n *Namespace) Sysctl(name, value string) error {
	return n.Do(func() error { return writeSysctl(name, value) })
}

func writeSysctl(name, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o600); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}

// onOwnThread runs fn on a thread that ends with it, since a thread whose namespace has changed must serve nobody else.
func onOwnThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		done <- fn()
	}()
	return <-done
}

// connect lays a cable between two namespaces; the ends get these names and are up.
func connect(a *Namespace, aName string, b *Namespace, bName string) error {
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: aName}, PeerName: bName, PeerNamespace: netlink.NsFd(int(b.handle)),
	}
	if err := a.links.LinkAdd(veth); err != nil {
		return fmt.Errorf("connect %s to %s: %w", aName, bName, err)
	}
	for _, end := range []struct {
		*Namespace
		name string
	}{{a, aName}, {b, bName}} {
		link, err := end.links.LinkByName(end.name)
		if err != nil {
			return fmt.Errorf("find %s: %w", end.name, err)
		}
		if err := end.links.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", end.name, err)
		}
	}
	return nil
}

// address gives a device an address; one that the namespace has been given already is no error.
func (n *Namespace) address(device string, p netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.addrs[p] {
		return nil
	}
	link, err := n.links.LinkByName(device)
	if err != nil {
		return fmt.Errorf("find %s: %w", device, err)
	}
	addr, err := netlink.ParseAddr(p.String())
	if err != nil {
		return fmt.Errorf("parse %v: %w", p, err)
	}
	addr.Flags = unix.IFA_F_NODAD
	if err := n.links.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("add %v to %s: %w", p, device, err)
	}
	n.addrs[p] = true
	return n.settled(p.Addr())
}

// settled waits until the kernel takes the address for its own: for IPv6, a worker adds that route some time after.
func (n *Namespace) settled(a netip.Addr) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	const tries = 5000
	for range tries {
		routes, err := n.links.RouteGet(a.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		<-tick.C
	}
	return fmt.Errorf("add %v: no local route after %d ms", a, tries)
}

// route sends a destination, or all that has no other route, to a gateway.
func (n *Namespace) route(to netip.Prefix, gateway netip.Addr) error {
	_, dst, err := netParse(to)
	if err != nil {
		return err
	}
	if err := n.links.RouteReplace(&netlink.Route{Dst: dst, Gw: gateway.AsSlice()}); err != nil {
		return fmt.Errorf("route %v by %v: %w", to, gateway, err)
	}
	return nil
}
