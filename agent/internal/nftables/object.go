package nftables

import (
	"net/netip"

	"github.com/google/nftables/expr"

	"github.com/fairlead/fairlead/proto/fwd"
)

// tableName is the name of our table in each family.
const tableName = "fairlead"

// Set is a set, or a map if it has data or verdicts.
type Set struct {
	Name string
	// Key and Data are what the elements consist of; Data is empty for sets and for verdict maps.
	Key, Data []field
	Verdict   bool
	// Clients: elements are added by packets and time out; they are no part of any plan.
	Clients bool
}

// isMap reports whether elements carry more than their key.
func (s Set) isMap() bool { return s.Verdict || len(s.Data) > 0 }

// Chain is a chain with all its rules.
type Chain struct {
	Name string
	// Hook is nil for a chain that others lead to.
	Hook  *hook
	Rules []Rule
}

// hook is where a base chain of type nat stands.
type hook struct {
	name     string
	number   uint32
	priority int32
}

// Rule is one rule, as nft prints it and as the kernel takes it.
type Rule struct {
	Text  string
	Exprs []expr.Any
}

// Element is an element of a set: what a key maps to is either Data or a jump to a chain. Key and Data are bytes as the
// kernel takes them.
type Element struct {
	Set, Key, Data string
	// Jump is the chain of a verdict map's element.
	Jump string
}

// same reports whether two elements of one key map to the same.
func (e Element) same(o Element) bool { return e.Data == o.Data && e.Jump == o.Jump }

// place is an element's identity.
type place struct{ set, key string }

func (e Element) place() place { return place{e.Set, e.Key} }

// frontend is where clients send to. Addr is invalid for a node port.
type frontend struct {
	addr     netip.Addr
	protocol fwd.Protocol
	port     uint16
}

func (f frontend) isNodePort() bool { return !f.addr.IsValid() }

// key is the frontend as the beginning of a key.
func (f frontend) key() []byte {
	b := make([]byte, 0, maxKey)
	if !f.isNodePort() {
		b = appendAddr(b, f.addr)
	}
	b = append(b, f.protocol.IANA(), 0, 0, 0)
	return appendPort(b, f.port)
}

// maxKey is the size of the longest key: a frontend and a client's address.
const maxKey = 40

func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		four := a.As4()
		return append(b, four[:]...)
	}
	sixteen := a.As16()
	return append(b, sixteen[:]...)
}

func appendPort(b []byte, port uint16) []byte { return append(b, byte(port>>8), byte(port), 0, 0) }

// endpointData is an endpoint as the data of an element.
func endpointData(a netip.AddrPort) string {
	return string(appendPort(appendAddr(make([]byte, 0, maxKey), a.Addr()), a.Port()))
}

// endpointOf reads what endpointData writes.
func endpointOf(data string) (netip.AddrPort, bool) {
	if len(data) < wordSize {
		return netip.AddrPort{}, false
	}
	n := len(data) - wordSize
	addr, ok := netip.AddrFromSlice([]byte(data[:n]))
	return netip.AddrPortFrom(addr, uint16(data[n])<<8|uint16(data[n+1])), ok
}
