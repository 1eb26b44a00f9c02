package ipvs

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/proto/fwd"
)

// markedSets speaks to the kernel about sets of the type hash:ip,port whose members carry packet marks (the ipset extension
// skbinfo), which vishvananda/netlink v1.3.1 can create, but neither fill nor read. The attributes are those of
// linux/netfilter/ipset/ip_set.h.
type markedSets struct{ socket *nl.SocketHandle }

// markedMember is a virtual IP and port, and the mark that packets to it get; 0: they keep theirs.
type markedMember struct {
	protocol fwd.Protocol
	addr     netip.AddrPort
	mark     uint32
}

// openMarkedSets opens the calling thread's network namespace.
func openMarkedSets() (*markedSets, error) {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink for marked sets: %w", err)
	}
	m := &markedSets{&nl.SocketHandle{Socket: s}}
	for _, limit := range []func(*unix.Timeval) error{s.SetSendTimeout, s.SetReceiveTimeout} {
		if err := limit(&nl.SocketTimeoutTv); err != nil {
			m.close()
			return nil, fmt.Errorf("limit time of netlink: %w", err)
		}
	}
	return m, nil
}

func (m *markedSets) close() { m.socket.Close() }

// request begins a message about a set.
func (m *markedSets) request(command int, set string) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(command|unix.NFNL_SUBSYS_IPSET<<8, nl.GetIpsetFlags(command))
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: m.socket}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_NETLINK, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(set)))
	return req
}

// put adds a member, or gives the one that is there another mark.
func (m *markedSets) put(set string, e markedMember) error {
	req := m.request(nl.IPSET_CMD_ADD, set)
	ip := nl.NewRtAttr(nl.IPSET_ATTR_IP|unix.NLA_F_NESTED, nil)
	version := nl.IPSET_ATTR_IPADDR_IPV4
	if e.addr.Addr().Is6() {
		version = nl.IPSET_ATTR_IPADDR_IPV6
	}
	ip.AddRtAttr(version|unix.NLA_F_NET_BYTEORDER, e.addr.Addr().AsSlice())
	data := nl.NewRtAttr(nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, nil)
	data.AddChild(ip)
	data.AddRtAttr(nl.IPSET_ATTR_PROTO, nl.Uint8Attr(e.protocol.IANA()))
	data.AddRtAttr(nl.IPSET_ATTR_PORT|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint16(nil, e.addr.Port()))
	data.AddRtAttr(nl.IPSET_ATTR_SKBMARK|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint64(nil, packMark(e.mark)))
	data.AddRtAttr(nl.IPSET_ATTR_LINENO|unix.NLA_F_NET_BYTEORDER, make([]byte, 4))
	req.AddData(data)
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	return err //nolint:wrapcheck // the caller names the member
}

// packMark is a mark and the bits of it that count: all or none.
func packMark(mark uint32) uint64 {
	if mark == 0 {
		return 0
	}
	return uint64(mark)<<32 | math.MaxUint32
}

// list reads a set: its type, and the members' addresses, ports, protocols and marks. It fails with unix.ENOENT where there is
// no such set.
func (m *markedSets) list(set string) (*netlink.IPSetResult, error) {
	messages, err := m.request(nl.IPSET_CMD_LIST, set).Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller names the set
	}
	result := &netlink.IPSetResult{}
	for _, message := range messages {
		for a := range nl.ParseAttributes(message[nl.SizeofNfgenmsg:]) {
			switch a.Type & nl.NLA_TYPE_MASK {
			case nl.IPSET_ATTR_TYPENAME:
				result.TypeName = nl.BytesToString(a.Value)
			case nl.IPSET_ATTR_ADT:
				for member := range nl.ParseAttributes(a.Value) {
					result.Entries = append(result.Entries, entryOf(member.Value))
				}
			}
		}
	}
	return result, nil
}

func entryOf(data []byte) netlink.IPSetEntry {
	var e netlink.IPSetEntry
	for a := range nl.ParseAttributes(data) {
		switch a.Type & nl.NLA_TYPE_MASK {
		case nl.IPSET_ATTR_IP:
			for ip := range nl.ParseAttributes(a.Value) {
				e.IP = net.IP(ip.Value)
			}
		case nl.IPSET_ATTR_PORT:
			port := binary.BigEndian.Uint16(a.Value)
			e.Port = &port
		case nl.IPSET_ATTR_PROTO:
			e.Protocol = &a.Value[0]
		case nl.IPSET_ATTR_SKBMARK:
			mark := uint32(binary.BigEndian.Uint64(a.Value) >> 32) //nolint:gosec // the other half is the mask
			e.Mark = &mark
		}
	}
	return e
}
