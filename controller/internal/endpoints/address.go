package endpoints

import (
	"fmt"
	"net/netip"

	utilnet "k8s.io/utils/net"
)

// ParseAddr reads an IP address as Kubernetes always did: leading zeros in an IPv4 address are decimal, and an IPv4-mapped
// IPv6 address is the IPv4 address. The API server still lets both through in stored objects (KEP-4858).
func ParseAddr(s string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return a.Unmap(), nil
	}
	a, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(s))
	if !ok {
		return netip.Addr{}, fmt.Errorf("address %q: want an IP address", s)
	}
	return a.Unmap(), nil
}

// ParsePrefix reads a CIDR with the tolerance of ParseAddr, and masks it.
func ParsePrefix(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Masked(), nil
	}
	_, n, err := utilnet.ParseCIDRSloppy(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("prefix %q: want a CIDR such as 192.0.2.0/24", s)
	}
	a, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(a, bits).Masked(), nil
}
