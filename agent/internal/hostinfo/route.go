package hostinfo

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// DeviceTowards returns the name of the device by which the current network namespace reaches an address, and by which packets
// from it commonly come in; "" where there is no way to it.
func DeviceTowards(a netip.Addr) (string, error) {
	routes, err := netlink.RouteGet(a.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || err == nil && len(routes) == 0 {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the route to %v: %w", a, err)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", fmt.Errorf("find the device towards %v: %w", a, err)
	}
	return link.Attrs().Name, nil
}
