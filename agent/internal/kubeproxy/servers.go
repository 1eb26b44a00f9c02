package kubeproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// device carries the virtual IPs in kube-proxy's IPVS mode.
const device = "kube-ipvs0"

// serverList is where a kernel with IPVS lists virtual servers. Where it is missing there are none, and the module is not
// loaded to see that.
const serverList = "/proc/net/ip_vs"

// removeServers removes virtual servers at addresses of the device: these are kube-proxy's beyond doubt. Those of node
// ports lie at addresses of the host, as others' virtual servers may, and stay.
func removeServers(context.Context) error {
	if _, err := os.Stat(serverList); err != nil {
		return nil //nolint:nilerr // no IPVS, no virtual servers
	}
	theirs, err := deviceAddrs()
	if err != nil || len(theirs) == 0 {
		return err
	}
	servers, err := ipvs.New("")
	if err != nil {
		return fmt.Errorf("open IPVS: %w", err)
	}
	defer servers.Close()
	all, err := servers.GetServices()
	if err != nil {
		return fmt.Errorf("read virtual servers: %w", err)
	}
	var errs []error
	for _, s := range all {
		if addr, ok := netip.AddrFromSlice(s.Address); s.FWMark == 0 && ok && theirs[addr] {
			if err := servers.DelService(s); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("remove virtual server %v port %d: %w", addr, s.Port, err))
			}
		}
	}
	return errors.Join(errs...)
}

// deviceAddrs returns the addresses of the device; none without it.
func deviceAddrs() (map[netip.Addr]bool, error) {
	link, err := netlink.LinkByName(device)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", device, err)
	}
	list, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("read addresses of %s: %w", device, err)
	}
	addrs := map[netip.Addr]bool{}
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			addrs[addr] = true
		}
	}
	return addrs, nil
}

func removeDevice(context.Context) error {
	link, err := netlink.LinkByName(device)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", device, err)
	}
	return nil
}

// removeSets removes ipsets by the names that kube-proxy gives: with the prefix KUBE-, and for IPv6 KUBE-6-.
func removeSets(context.Context) error {
	if _, _, err := netlink.IpsetProtocol(); err != nil {
		return nil //nolint:nilerr // no ipset in the kernel
	}
	sets, err := netlink.IpsetListAll()
	if err != nil {
		return fmt.Errorf("read ipsets: %w", err)
	}
	var errs []error
	for _, s := range sets {
		if !strings.HasPrefix(s.SetName, "KUBE-") {
			continue
		}
		if err := netlink.IpsetDestroy(s.SetName); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("destroy ipset %s: %w", s.SetName, err))
		}
	}
	return errors.Join(errs...)
}
