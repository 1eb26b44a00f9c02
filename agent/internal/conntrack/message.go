package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Attributes of linux/netfilter/nfnetlink_conntrack.h that the netlink library does not name.
const (
	ctaFilter          = 25 // narrows a dump, Linux 5.8; older kernels ignore it and send every flow
	ctaFilterOrigFlags = 1

	filterIPDst    = 1 << 1 // bits of the original direction's flags
	filterProtoNum = 1 << 3
	filterDstPort  = 1 << 5

	statusSeenReply = 1 << 1 // of linux/netfilter/nf_conntrack_common.h
	tcpSynSent      = 1      // of linux/netfilter/nf_conntrack_tcp.h
)

// flow is one tracked flow: what Filters look at, and the raw attributes that name it to the kernel.
type flow struct {
	protocol        uint8 // its IANA number
	to, repliesFrom netip.AddrPort
	// unanswered: of TCP, and nothing but its SYN was ever seen.
	unanswered bool
	// tuple, zone and id are copies of attribute payloads; zone and id may be nil. With the id, a younger flow between the
	// same ends is not mistaken for this one.
	tuple, zone, id []byte
}

// conversation is one socket's use for one family.
type conversation struct {
	family  fwd.Family
	sockets map[int]*nl.SocketHandle
}

func (c *conversation) request(operation, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|operation, flags)
	r.Sockets = c.sockets
	r.AddData(&nl.Nfgenmsg{NfgenFamily: addressFamily(c.family), Version: nl.NFNETLINK_V0})
	return r
}

// dump returns the flows that filters select, which are of one protocol.
func (c *conversation) dump(ctx context.Context, filters []Filter) ([]flow, error) {
	byTo := make(map[netip.AddrPort]Filter, len(filters))
	for _, f := range filters {
		byTo[f.To] = f
	}
	protocol := filters[0].protocol().IANA()
	req := c.request(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	for _, attr := range narrowing(filters) {
		req.AddData(attr)
	}
	var victims []flow
	var bad error
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		f, err := parseFlow(msg)
		if err != nil {
			bad = errors.Join(bad, err)
			return false
		}
		if f.protocol == protocol && match(byTo, &f) {
			f.tuple, f.zone, f.id = slices.Clone(f.tuple), slices.Clone(f.zone), slices.Clone(f.id)
			victims = append(victims, f)
		}
		return ctx.Err() == nil
	})
	if err := errors.Join(err, bad, ctx.Err()); err != nil {
		return nil, fmt.Errorf("dump flows: %w", err)
	}
	return victims, nil
}

// narrowing asks the kernel for flows of the filters' protocol only, and for those of one address or port where all filters share it. Not by
// IPv6 address: Linux (seen in 6.18) takes equal addresses for different ones there, and sends all flows but the wanted.
func narrowing(filters []Filter) []nl.NetlinkRequestData {
	first, oneAddr, onePort := filters[0].To, true, true
	for _, f := range filters[1:] {
		oneAddr = oneAddr && f.To.Addr() == first.Addr()
		onePort = onePort && f.To.Port() == first.Port()
	}
	flags := uint32(filterProtoNum)
	tuple := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	if oneAddr && first.Addr().Is4() {
		flags |= filterIPDst
		tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_IP, nil).AddRtAttr(nl.CTA_IP_V4_DST, first.Addr().AsSlice())
	}
	proto := tuple.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{filters[0].protocol().IANA()})
	if onePort {
		flags |= filterDstPort
		proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(first.Port()))
	}
	filter := nl.NewRtAttr(unix.NLA_F_NESTED|ctaFilter, nil)
	filter.AddRtAttr(ctaFilterOrigFlags, nl.Uint32Attr(flags))
	return []nl.NetlinkRequestData{tuple, filter}
}

func (c *conversation) delete(f flow) error {
	req := c.request(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	req.AddData(nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, f.tuple))
	if f.zone != nil {
		req.AddData(nl.NewRtAttr(nl.CTA_ZONE, f.zone))
	}
	if f.id != nil {
		req.AddData(nl.NewRtAttr(nl.CTA_ID, f.id))
	}
	return req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func([]byte) bool { return true })
}

// parseFlow reads one message of a dump. The flow refers to msg. One of UDP or TCP has both ends of both directions: a
// request to delete without a tuple would empty the whole table.
func parseFlow(msg []byte) (flow, error) {
	if len(msg) < nl.SizeofNfgenmsg {
		return flow{}, fmt.Errorf("parse flow: message of %d bytes", len(msg))
	}
	var f flow
	var status uint32
	var state uint8
	for kind, payload := range attributes(msg[nl.SizeofNfgenmsg:]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			f.tuple = payload
			_, f.to, f.protocol = parseTuple(payload)
		case nl.CTA_TUPLE_REPLY:
			f.repliesFrom, _, _ = parseTuple(payload)
		case nl.CTA_STATUS:
			if len(payload) == 4 {
				status = binary.BigEndian.Uint32(payload)
			}
		case nl.CTA_PROTOINFO:
			state = parseState(payload)
		case nl.CTA_ZONE:
			f.zone = payload
		case nl.CTA_ID:
			f.id = payload
		}
	}
	f.unanswered = f.protocol == fwd.TCP.IANA() && state == tcpSynSent && status&statusSeenReply == 0
	ends := f.protocol == fwd.UDP.IANA() || f.protocol == fwd.TCP.IANA()
	if ends && (!f.to.IsValid() || !f.repliesFrom.IsValid()) {
		return flow{}, errors.New("parse flow: address or port is missing")
	}
	return f, nil
}

// parseState returns the state of a TCP connection; 0 is none.
func parseState(b []byte) uint8 {
	for kind, payload := range attributes(b) {
		for inner, v := range attributes(payload) {
			if kind == nl.CTA_PROTOINFO_TCP && inner == nl.CTA_PROTOINFO_TCP_STATE && len(v) == 1 {
				return v[0]
			}
		}
	}
	return 0
}

// parseTuple reads one direction of a flow; an end without address is not valid.
func parseTuple(b []byte) (from, to netip.AddrPort, protocol uint8) {
	var fromAddr, toAddr netip.Addr
	var fromPort, toPort uint16
	for kind, payload := range attributes(b) {
		for inner, v := range attributes(payload) {
			switch {
			case kind == nl.CTA_TUPLE_IP && (inner == nl.CTA_IP_V4_SRC || inner == nl.CTA_IP_V6_SRC):
				fromAddr, _ = netip.AddrFromSlice(v)
			case kind == nl.CTA_TUPLE_IP && (inner == nl.CTA_IP_V4_DST || inner == nl.CTA_IP_V6_DST):
				toAddr, _ = netip.AddrFromSlice(v)
			case kind == nl.CTA_TUPLE_PROTO && inner == nl.CTA_PROTO_NUM && len(v) == 1:
				protocol = v[0]
			case kind == nl.CTA_TUPLE_PROTO && inner == nl.CTA_PROTO_SRC_PORT && len(v) == 2:
				fromPort = binary.BigEndian.Uint16(v)
			case kind == nl.CTA_TUPLE_PROTO && inner == nl.CTA_PROTO_DST_PORT && len(v) == 2:
				toPort = binary.BigEndian.Uint16(v)
			}
		}
	}
	return netip.AddrPortFrom(fromAddr, fromPort), netip.AddrPortFrom(toAddr, toPort), protocol
}

// attributes yields kind and payload of a run of netlink attributes, and stops at the first that does not fit.
func attributes(b []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for len(b) >= unix.NLA_HDRLEN {
			length := int(binary.NativeEndian.Uint16(b))
			kind := int(binary.NativeEndian.Uint16(b[2:]) & nl.NLA_TYPE_MASK)
			if length < unix.NLA_HDRLEN || length > len(b) || !yield(kind, b[unix.NLA_HDRLEN:length]) {
				return
			}
			b = b[min(len(b), (length+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
		}
	}
}

func addressFamily(f fwd.Family) uint8 {
	if f == fwd.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
