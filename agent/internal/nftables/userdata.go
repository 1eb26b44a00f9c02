package nftables

import "encoding/binary"

// User data of sets: what nft stores with them to print them again as "typeof …". The kernel does not look at it. The
// numbers are those of libnftnl (nftnl_udata_set_types) and of nft's sources (expr_types, proto_desc_id).
const (
	udataKeyByteOrder  = 0
	udataDataByteOrder = 1
	udataKeyTypeof     = 3
	udataDataTypeof    = 4

	typeofExpr = 0
	typeofData = 1

	exprVerdict = 1
	exprPayload = 7
	exprMeta    = 9
	exprConcat  = 13
	exprNumgen  = 23

	orderUnknown = 0
	orderBig     = 2

	descTransport = 11
	descIPv4      = 12
	descIPv6      = 13
)

// typeofField is how nft knows a field.
type typeofField struct {
	expr uint32
	// values are the expression's parameters, in the order of their numbers.
	values []uint32
}

func setUserdata(s Set) []byte {
	b := udataNumber(nil, udataKeyByteOrder, byteOrder(s.Key))
	if s.isMap() {
		b = udataNumber(b, udataDataByteOrder, byteOrder(s.Data))
	}
	b = udata(b, udataKeyTypeof, typeof(s.Key))
	switch {
	case s.Verdict:
		b = udata(b, udataDataTypeof, typeofBytes(exprVerdict, nil))
	case s.isMap():
		b = udata(b, udataDataTypeof, typeof(s.Data))
	}
	return b
}

// byteOrder of a single field; those of a concatenation are known by themselves.
func byteOrder(fields []field) uint32 {
	if len(fields) == 1 {
		return orderBig
	}
	return orderUnknown
}

func typeof(fields []field) []byte {
	if len(fields) == 1 {
		return fields[0].typeof.bytes()
	}
	var all []byte
	for i, f := range fields {
		all = udata(all, byte(i), f.typeof.bytes())
	}
	return typeofBytes(exprConcat, all)
}

func (t typeofField) bytes() []byte {
	var values []byte
	for i, v := range t.values {
		values = udataNumber(values, byte(i), v)
	}
	return typeofBytes(t.expr, values)
}

func typeofBytes(expr uint32, data []byte) []byte {
	return udata(udataNumber(nil, typeofExpr, expr), typeofData, data)
}

// udata appends one item: its type, its length and its value, one byte each but the last.
func udata(b []byte, kind byte, value []byte) []byte {
	return append(append(b, kind, byte(len(value))), value...)
}

func udataNumber(b []byte, kind byte, n uint32) []byte {
	return udata(b, kind, binary.NativeEndian.AppendUint32(nil, n))
}
