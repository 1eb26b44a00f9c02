package nftables

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/proto/fwd"
)

// wordSize is the size of a register, and what fields in a key are padded to.
const wordSize = 4

// field is a part of a packet (or of what the kernel knows about it) that keys and data are made of.
type field struct {
	text string
	// kind is nft's number of the type, for set definitions; size is in bytes.
	kind, size int
	// typeof is how nft stores the field in a set's definition.
	typeof typeofField
	load   func(register uint32) []expr.Any
}

func (f field) words() int { return (f.size + wordSize - 1) / wordSize }

// nft's numbers of types (enum datatypes in its sources), which set definitions carry for those who list them.
const (
	kindInteger = 4
	kindIPv4    = 7
	kindIPv6    = 8
	kindProto   = 12
	kindService = 13
)

// register names the n-th 32-bit register as the kernel dumps it: every fourth is the beginning of one of 128 bits.
func register(word int) uint32 {
	if word%4 == 0 {
		return uint32(word/4) + unix.NFT_REG_1
	}
	return uint32(word) + unix.NFT_REG32_00
}

// language is how one family is spoken.
type language struct {
	family fwd.Family
	// ip is the keyword of addresses.
	ip                  string
	kind                int
	saddr, daddr        field
	originalDaddr       field
	protocol, dport     field
	originalDport, slot field
	nf                  uint32 // NFPROTO_*
}

func newLanguage(f fwd.Family) *language {
	l := &language{family: f, ip: "ip", kind: kindIPv4, nf: unix.NFPROTO_IPV4}
	saddr, daddr, ctDaddr := header{descIPv4, 11, 12}, header{descIPv4, 12, 16}, expr.CtKey(unix.NFT_CT_DST_IP)
	if f == fwd.IPv6 {
		l.ip, l.kind, l.nf = "ip6", kindIPv6, unix.NFPROTO_IPV6
		saddr, daddr, ctDaddr = header{descIPv6, 8, 8}, header{descIPv6, 9, 24}, unix.NFT_CT_DST_IP6
	}
	size := f.Bits() / 8
	l.saddr = saddr.field(l.ip+" saddr", l.kind, size)
	l.daddr = daddr.field(l.ip+" daddr", l.kind, size)
	l.dport = header{descTransport, 2, 2}.field("th dport", kindService, 2)
	l.protocol = field{"meta l4proto", kindProto, 1, typeofField{exprMeta, []uint32{unix.NFT_META_L4PROTO}}, func(r uint32) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: r}}
	}}
	l.originalDaddr = original(l.daddr, "ct original "+l.daddr.text, ctDaddr)
	l.originalDport = original(l.dport, "ct original proto-dst", expr.CtKeyPROTODST)
	l.slot = random(maxSlots)
	return l
}

// header is where a field stands: nft's numbers of the protocol and the field, and the offset in bytes.
type header struct{ desc, number, offset uint32 }

func (h header) field(text string, kind, size int) field {
	base := expr.PayloadBaseNetworkHeader
	if h.desc == descTransport {
		base = expr.PayloadBaseTransportHeader
	}
	return field{text, kind, size, typeofField{exprPayload, []uint32{h.desc, h.number}}, func(r uint32) []expr.Any {
		return []expr.Any{&expr.Payload{DestRegister: r, Base: base, Offset: h.offset, Len: uint32(size)}}
	}}
}

// original is what a field was before the translation. Set definitions know it as the field itself.
func original(f field, text string, key expr.CtKey) field {
	f.text, f.load = text, func(r uint32) []expr.Any { return []expr.Any{&expr.Ct{Register: r, Key: key}} }
	return f
}

// random is a random number below n, in the byte order of the host.
func random(n int) field {
	return field{fmt.Sprintf("numgen random mod %d", n), kindInteger, wordSize, typeofField{exprNumgen, []uint32{unix.NFT_NG_RANDOM, uint32(n), 0}}, func(r uint32) []expr.Any {
		return []expr.Any{&expr.Numgen{Register: r, Modulus: uint32(n), Type: unix.NFT_NG_RANDOM}}
	}}
}

// masked is the first bits of an address field.
func masked(f field, bits int) field {
	mask := netip.PrefixFrom(netip.IPv4Unspecified(), 0).Addr()
	if f.kind == kindIPv6 {
		mask = netip.IPv6Unspecified()
	}
	ones := mask.AsSlice()
	for i := range bits {
		ones[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(ones)
	load := f.load
	f.text = fmt.Sprintf("%s & %v", f.text, addr)
	f.load = func(r uint32) []expr.Any { return append(load(r), maskRegister(r, ones)) }
	return f
}

func maskRegister(r uint32, mask []byte) expr.Any {
	return &expr.Bitwise{SourceRegister: r, DestRegister: r, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))}
}

// part is a piece of a rule.
type part struct {
	text  string
	exprs []expr.Any
}

// rule joins pieces, in the order in which the kernel looks at them.
func rule(parts ...part) Rule {
	var r Rule
	var texts []string
	for _, p := range parts {
		texts = append(texts, p.text)
		r.Exprs = append(r.Exprs, p.exprs...)
	}
	r.Text = strings.Join(texts, " ")
	return r
}

// loaded puts fields into registers from the first on.
func loaded(fields []field) part {
	var texts []string
	var exprs []expr.Any
	word := 0
	for _, f := range fields {
		texts = append(texts, f.text)
		exprs = append(exprs, f.load(register(word))...)
		word += f.words()
	}
	return part{strings.Join(texts, " . "), exprs}
}

// in matches what is in a set.
func in(set string, key ...field) part {
	p := loaded(key)
	return part{p.text + " @" + set, append(p.exprs, &expr.Lookup{SourceRegister: register(0), SetName: set})}
}

// notIn matches what is not in a set.
func notIn(set string, key ...field) part {
	p := loaded(key)
	return part{p.text + " != @" + set, append(p.exprs, &expr.Lookup{SourceRegister: register(0), SetName: set, Invert: true})}
}

// vmap jumps where a verdict map says.
func vmap(set string, key ...field) part {
	p := loaded(key)
	return part{p.text + " vmap @" + set, append(p.exprs,
		&expr.Lookup{SourceRegister: register(0), DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: set})}
}

// dnat translates to what a map holds for the key, and ends the walk; on a miss the walk goes on.
func (l *language) dnat(from string, key ...field) part {
	p := loaded(key)
	addr, port := register(0), register(l.daddr.words())
	return part{"dnat " + l.ip + " to " + p.text + " map @" + from, append(p.exprs,
		&expr.Lookup{SourceRegister: register(0), DestRegister: addr, IsDestRegSet: true, SetName: from},
		&expr.NAT{
			Type: expr.NATTypeDestNAT, Family: l.nf, RegAddrMin: addr, RegAddrMax: addr, RegProtoMin: port, RegProtoMax: port,
			Specified: true,
		})}
}

// update remembers the packet's destination by its source, or renews what is remembered.
func (l *language) update(set string, timeout time.Duration) part {
	const data = 4 // the second of the large registers, where nft puts it too
	exprs := l.saddr.load(register(0))
	exprs = append(exprs, l.daddr.load(register(data))...)
	exprs = append(exprs, l.dport.load(register(data+l.daddr.words()))...)
	text := fmt.Sprintf("update @%s { %s timeout %ds : %s . %s }", set, l.saddr.text, int(timeout.Seconds()), l.daddr.text, l.dport.text)
	return part{text, append(exprs, &expr.Dynset{
		SrcRegKey: register(0), SrcRegData: register(data), SetName: set, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: timeout,
	})}
}

// within matches an address field by a prefix. Prefixes of whole bytes are compared without a mask, as nft does.
func within(f field, p netip.Prefix) part {
	r, want := register(0), p.Addr().AsSlice()
	exprs, text := f.load(r), p.String()
	switch load, ok := exprs[0].(*expr.Payload); {
	case p.IsSingleIP():
		text = p.Addr().String()
	case ok && p.Bits() > 0 && p.Bits()%8 == 0:
		load.Len = uint32(p.Bits() / 8)
		want = want[:load.Len]
	default:
		exprs = masked(f, p.Bits()).load(r)
	}
	return part{f.text + " " + text, append(exprs, &expr.Cmp{Op: expr.CmpOpEq, Register: r, Data: want})}
}

// typeLocal matches addresses of the node: "saddr" or "daddr".
func typeLocal(side string) part {
	local := binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)
	return part{"fib " + side + " type local", []expr.Any{
		&expr.Fib{Register: register(0), ResultADDRTYPE: true, FlagSADDR: side == "saddr", FlagDADDR: side == "daddr"},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: local},
	}}
}

// from matches the device that a packet came by: a name, or a prefix of names if it ends in "*".
func from(device string) part {
	name, prefix := strings.CutSuffix(device, "*")
	data := []byte(name)
	if !prefix {
		data = append(data, make([]byte, unix.IFNAMSIZ-len(data))...)
	}
	return part{fmt.Sprintf("iifname %q", device), []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: data},
	}}
}

// over matches by protocol. nft wants it in front of anything that depends on ports.
func (l *language) over(p fwd.Protocol) part {
	return part{"meta l4proto " + strings.ToLower(p.String()), append(l.protocol.load(register(0)),
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{p.IANA()}})}
}

// translated matches connections whose destination was translated, by whomever.
func translated() part {
	const statusDNAT = 1 << 5 // IPS_DST_NAT
	return part{"ct status dnat", append([]expr.Any{&expr.Ct{Register: register(0), Key: expr.CtKeySTATUS}}, bitSet(statusDNAT)...)}
}

// marked matches packets with a bit of the mark.
func marked(bit uint32) part {
	return part{
		fmt.Sprintf("meta mark & 0x%08x != 0x00000000", bit),
		append([]expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: register(0)}}, bitSet(bit)...),
	}
}

func bitSet(bit uint32) []expr.Any {
	return []expr.Any{
		maskRegister(register(0), binary.NativeEndian.AppendUint32(nil, bit)),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: make([]byte, wordSize)},
	}
}

// setMark sets a bit of the mark and leaves the others.
func setMark(bit uint32) part {
	return remark(fmt.Sprintf("meta mark set meta mark | 0x%08x", bit), bit, bit)
}

// clearMark clears a bit of the mark and leaves the others.
func clearMark(bit uint32) part {
	return remark(fmt.Sprintf("meta mark set meta mark & 0x%08x", ^bit), bit, 0)
}

func remark(text string, bit, to uint32) part {
	order := binary.NativeEndian
	return part{text, []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register(0)},
		&expr.Bitwise{
			SourceRegister: register(0), DestRegister: register(0), Len: wordSize,
			Mask: order.AppendUint32(nil, ^bit), Xor: order.AppendUint32(nil, to),
		},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register(0), SourceRegister: true},
	}}
}

// masquerade gives packets the node's address, with a source port that cannot be foretold.
func masquerade() part {
	return part{"masquerade fully-random", []expr.Any{&expr.Masq{FullyRandom: true}}}
}

// reject answers: TCP by a reset, others by ICMP.
func rejectReset() part {
	return part{"reject with tcp reset", []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}}
}

func (l *language) rejectUnreachable() part {
	code, text := uint8(3), "reject" // ICMP: port unreachable
	if l.family == fwd.IPv6 {
		code = 4 // ICMPv6: port unreachable
	}
	return part{text, []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}}}
}

func drop() part { return part{"drop", []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}} }

func back() part { return part{"return", []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}} }

func jump(chain string) part {
	return part{"jump " + chain, []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}}
}

func goTo(chain string) part {
	return part{"goto " + chain, []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: chain}}}
}

// sameRule reports whether two rules do the same.
func sameRule(nf byte, a, b []expr.Any) bool {
	return slices.EqualFunc(a, b, func(x, y expr.Any) bool {
		p, errX := marshalExpr(nf, x)
		q, errY := marshalExpr(nf, y)
		return errX == nil && errY == nil && slices.Equal(p, q)
	})
}

// marshalExpr encodes an expression. The library leaves the direction out where it is needed.
func marshalExpr(nf byte, e expr.Any) ([]byte, error) {
	c, ok := e.(*expr.Ct)
	if !ok || c.Key == expr.CtKeySTATUS {
		return expr.Marshal(nf, e)
	}
	return marshal([]netlink.Attribute{
		text(unix.NFTA_EXPR_NAME, "ct"),
		nest(unix.NFTA_EXPR_DATA, number(unix.NFTA_CT_KEY, uint32(c.Key)), number(unix.NFTA_CT_DREG, c.Register),
			netlink.Attribute{Type: unix.NFTA_CT_DIRECTION, Data: []byte{byte(c.Direction)}}),
	}), nil
}
