package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Sizes of netlink's structures.
const (
	headerSize  = unix.SizeofNlMsghdr
	genSize     = 4 // struct nfgenmsg
	attrSize    = unix.SizeofNlAttr
	maxElements = math.MaxUint16 - 1024 // bytes of one list of elements; an attribute's length is 16 bits
)

// batch is one transaction under construction: the kernel does all of it or nothing.
type batch struct {
	nf    byte
	table string
	buf   []byte
	// err is what could not be encoded; such a batch is not sent.
	err error
	// notes says what each message is for, in errors.
	notes []string
	// open is the element list that grows, if any.
	open struct {
		set         string
		op          uint16
		start, list int // offsets of the message and of the list attribute
	}
}

func newBatch(l *language) *batch {
	b := &batch{nf: byte(l.nf), table: tableName}
	b.control(unix.NFNL_MSG_BATCH_BEGIN)
	return b
}

// empty reports whether nothing was asked for yet.
func (b *batch) empty() bool { return len(b.notes) <= 1 }

// bytes ends the batch and returns it. Sequence numbers count from first; the last message of ours asks for an answer.
func (b *batch) bytes(first uint32) []byte {
	b.closeElements()
	b.control(unix.NFNL_MSG_BATCH_END)
	order := binary.NativeEndian
	for at, n := 0, 0; at < len(b.buf); n++ {
		order.PutUint32(b.buf[at+8:], first+uint32(n))
		if n == len(b.notes)-2 {
			order.PutUint16(b.buf[at+6:], order.Uint16(b.buf[at+6:])|unix.NLM_F_ACK)
		}
		at += align(int(order.Uint32(b.buf[at:])))
	}
	return b.buf
}

func align(n int) int { return (n + 3) &^ 3 }

func (b *batch) control(kind uint16) {
	at := b.begin(kind, 0, "commit")
	b.buf[at+headerSize] = 0 // AF_UNSPEC
	binary.BigEndian.PutUint16(b.buf[at+headerSize+2:], unix.NFNL_SUBSYS_NFTABLES)
	b.end(at)
}

// begin starts a message and returns where it is.
func (b *batch) begin(kind, flags uint16, note string) int {
	at := len(b.buf)
	b.buf = append(b.buf, make([]byte, headerSize+genSize)...)
	order := binary.NativeEndian
	order.PutUint16(b.buf[at+4:], kind)
	order.PutUint16(b.buf[at+6:], flags|unix.NLM_F_REQUEST)
	b.buf[at+headerSize] = b.nf
	b.notes = append(b.notes, note)
	return at
}

func (b *batch) end(at int) {
	b.buf = padded(b.buf)
	binary.NativeEndian.PutUint32(b.buf[at:], uint32(len(b.buf)-at))
}

func nftables(op uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | op }

// message appends a whole message.
func (b *batch) message(op, flags uint16, note string, attrs []netlink.Attribute) {
	b.closeElements()
	at := b.begin(nftables(op), flags, note)
	b.buf = append(b.buf, marshal(attrs)...)
	b.end(at)
}

// marshal encodes attributes, none of which is longer than 64 KiB.
func marshal(attrs []netlink.Attribute) []byte {
	var b []byte
	for _, a := range attrs {
		b = binary.NativeEndian.AppendUint16(b, uint16(attrSize+len(a.Data)))
		b = binary.NativeEndian.AppendUint16(b, a.Type)
		b = padded(append(b, a.Data...))
	}
	return b
}

func padded(b []byte) []byte { return append(b, make([]byte, align(len(b))-len(b))...) }

func text(kind uint16, s string) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: append([]byte(s), 0)}
}

func number(kind uint16, n uint32) netlink.Attribute {
	return netlink.Attribute{Type: kind, Data: binary.BigEndian.AppendUint32(nil, n)}
}

func nest(kind uint16, attrs ...netlink.Attribute) netlink.Attribute {
	return netlink.Attribute{Type: kind | unix.NLA_F_NESTED, Data: marshal(attrs)}
}

func (b *batch) addTable(flags uint32) {
	b.message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, "add table", []netlink.Attribute{
		text(unix.NFTA_TABLE_NAME, b.table), number(unix.NFTA_TABLE_FLAGS, flags),
	})
}

func (b *batch) deleteTable() {
	b.message(unix.NFT_MSG_DELTABLE, 0, "delete table", []netlink.Attribute{text(unix.NFTA_TABLE_NAME, b.table)})
}

func (b *batch) addChain(c Chain) {
	attrs := []netlink.Attribute{text(unix.NFTA_CHAIN_TABLE, b.table), text(unix.NFTA_CHAIN_NAME, c.Name)}
	if c.Hook != nil {
		attrs = append(attrs,
			nest(unix.NFTA_CHAIN_HOOK, number(unix.NFTA_HOOK_HOOKNUM, c.Hook.number), number(unix.NFTA_HOOK_PRIORITY, uint32(c.Hook.priority))),
			number(unix.NFTA_CHAIN_POLICY, policyAccept), text(unix.NFTA_CHAIN_TYPE, "nat"))
	}
	b.message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, "add chain "+c.Name, attrs)
}

func (b *batch) deleteChain(name string) {
	b.message(unix.NFT_MSG_DELCHAIN, 0, "delete chain "+name, []netlink.Attribute{
		text(unix.NFTA_CHAIN_TABLE, b.table), text(unix.NFTA_CHAIN_NAME, name),
	})
}

func (b *batch) flushChain(name string) {
	b.message(unix.NFT_MSG_DELRULE, 0, "flush chain "+name, []netlink.Attribute{
		text(unix.NFTA_RULE_TABLE, b.table), text(unix.NFTA_RULE_CHAIN, name),
	})
}

func (b *batch) addRule(chain string, r Rule) {
	var exprs []netlink.Attribute
	for _, e := range r.Exprs {
		data, err := marshalExpr(b.nf, e)
		if err != nil {
			b.err = errors.Join(b.err, fmt.Errorf("encode %T of rule %q: %w", e, r.Text, err))
		}
		exprs = append(exprs, netlink.Attribute{Type: unix.NFTA_LIST_ELEM | unix.NLA_F_NESTED, Data: data})
	}
	b.message(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, "add rule to "+chain+": "+r.Text, []netlink.Attribute{
		text(unix.NFTA_RULE_TABLE, b.table), text(unix.NFTA_RULE_CHAIN, chain), nest(unix.NFTA_RULE_EXPRESSIONS, exprs...),
	})
}

// policyAccept is NF_ACCEPT.
const policyAccept = 1

// clientsSize is how many clients one Service port with session affinity remembers. The kernel allocates as it goes.
const clientsSize = 1 << 20

func (b *batch) addSet(s Set) {
	attrs := []netlink.Attribute{
		text(unix.NFTA_SET_TABLE, b.table), text(unix.NFTA_SET_NAME, s.Name), number(unix.NFTA_SET_ID, uint32(len(b.notes))),
	}
	d := definition(s)
	attrs = append(attrs, number(unix.NFTA_SET_FLAGS, d.flags), number(unix.NFTA_SET_KEY_TYPE, d.keyType), number(unix.NFTA_SET_KEY_LEN, d.keyLen))
	if s.isMap() {
		attrs = append(attrs, number(unix.NFTA_SET_DATA_TYPE, d.dataType), number(unix.NFTA_SET_DATA_LEN, d.dataLen))
	}
	if s.Clients {
		attrs = append(attrs, nest(unix.NFTA_SET_DESC, number(unix.NFTA_SET_DESC_SIZE, clientsSize)))
	}
	attrs = append(attrs, netlink.Attribute{Type: unix.NFTA_SET_USERDATA, Data: setUserdata(s)})
	b.message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, "add set "+s.Name, attrs)
}

func (b *batch) deleteSet(name string) {
	b.message(unix.NFT_MSG_DELSET, 0, "delete set "+name, []netlink.Attribute{
		text(unix.NFTA_SET_TABLE, b.table), text(unix.NFTA_SET_NAME, name),
	})
}

// setDefinition is what the kernel knows of a set besides its name.
type setDefinition struct{ flags, keyType, keyLen, dataType, dataLen uint32 }

// typeVerdict is the data type of verdict maps (NFT_DATA_VERDICT).
const typeVerdict = 0xffffff00

func definition(s Set) setDefinition {
	var d setDefinition
	d.keyType, d.keyLen = concatenated(s.Key)
	switch {
	case s.Verdict:
		d.dataType, d.flags = typeVerdict, unix.NFT_SET_MAP
		// The length that the kernel gives a verdict is that of its structure.
	case len(s.Data) > 0:
		d.dataType, d.dataLen = concatenated(s.Data)
		d.flags = unix.NFT_SET_MAP
	}
	if s.Clients {
		d.flags |= unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL
	}
	return d
}

// concatenated is nft's number of a type that consists of several (6 bits each), and the length of its values.
func concatenated(fields []field) (kind, length uint32) {
	for _, f := range fields {
		kind = kind<<6 | uint32(f.kind)
		length += uint32(f.words() * wordSize)
	}
	if len(fields) == 1 {
		length = uint32(fields[0].size)
	}
	return kind, length
}

// element adds an element to a message that adds or removes some of the same set.
func (b *batch) element(op uint16, e Element) {
	if b.open.set != e.Set || b.open.op != op || len(b.buf)-b.open.list > maxElements {
		b.openElements(op, e.Set)
	}
	order := binary.NativeEndian
	at := b.nested(unix.NFTA_LIST_ELEM)
	key := b.nested(unix.NFTA_SET_ELEM_KEY)
	b.value(e.Key)
	order.PutUint16(b.buf[key:], uint16(len(b.buf)-key))
	switch {
	case e.Jump != "":
		data := b.nested(unix.NFTA_SET_ELEM_DATA)
		b.buf = append(b.buf, marshal([]netlink.Attribute{nest(unix.NFTA_DATA_VERDICT,
			number(unix.NFTA_VERDICT_CODE, jumpCode), text(unix.NFTA_VERDICT_CHAIN, e.Jump))})...)
		order.PutUint16(b.buf[data:], uint16(len(b.buf)-data))
	case e.Data != "":
		data := b.nested(unix.NFTA_SET_ELEM_DATA)
		b.value(e.Data)
		order.PutUint16(b.buf[data:], uint16(len(b.buf)-data))
	}
	order.PutUint16(b.buf[at:], uint16(len(b.buf)-at))
}

// jumpCode is NFT_JUMP, -3, as it is sent.
const jumpCode = math.MaxUint32 - 2

// nested starts a nested attribute and returns where its length belongs.
func (b *batch) nested(kind uint16) int {
	at := len(b.buf)
	b.buf = binary.NativeEndian.AppendUint16(append(b.buf, 0, 0), kind|unix.NLA_F_NESTED)
	return at
}

func (b *batch) value(s string) {
	order := binary.NativeEndian
	b.buf = order.AppendUint16(b.buf, uint16(attrSize+len(s)))
	b.buf = order.AppendUint16(b.buf, unix.NFTA_DATA_VALUE)
	b.buf = padded(append(b.buf, s...))
}

func (b *batch) openElements(op uint16, set string) {
	b.closeElements()
	flags, note := uint16(unix.NLM_F_CREATE), "add elements to "
	if op == unix.NFT_MSG_DELSETELEM {
		flags, note = 0, "remove elements from "
	}
	b.open.set, b.open.op = set, op
	b.open.start = b.begin(nftables(op), flags, note+set)
	b.buf = append(b.buf, marshal([]netlink.Attribute{
		text(unix.NFTA_SET_ELEM_LIST_TABLE, b.table), text(unix.NFTA_SET_ELEM_LIST_SET, set),
	})...)
	b.open.list = b.nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
}

func (b *batch) closeElements() {
	if b.open.set == "" {
		return
	}
	binary.NativeEndian.PutUint16(b.buf[b.open.list:], uint16(len(b.buf)-b.open.list))
	b.end(b.open.start)
	b.open.set = ""
}
