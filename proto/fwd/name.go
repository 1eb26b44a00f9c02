package fwd

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Family is an IP family. Every ServicePort is of one.
type Family uint8

// The two families. The zero value is IPv4.
const (
	IPv4 Family = iota
	IPv6
)

// Families lists both, in the order in which output names them.
func Families() []Family { return []Family{IPv4, IPv6} }

// String returns "IPv4" or "IPv6".
func (f Family) String() string {
	if f == IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// Bits is the length of an address: 32 or 128.
func (f Family) Bits() int {
	if f == IPv6 {
		return 128
	}
	return 32
}

// FamilyOf tells the family of an address. An IPv4-mapped IPv6 address counts as IPv6: no valid table holds one.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Protocol is a transport protocol that Services know.
type Protocol uint8

// The protocols; the numbers are those of fairlead.v1.Protocol.
const (
	TCP  = Protocol(fairleadv1.Protocol_PROTOCOL_TCP)
	UDP  = Protocol(fairleadv1.Protocol_PROTOCOL_UDP)
	SCTP = Protocol(fairleadv1.Protocol_PROTOCOL_SCTP)
)

// Protocols lists all of them, in the order in which output names them.
func Protocols() []Protocol { return []Protocol{TCP, UDP, SCTP} }

// String returns the name as Kubernetes writes it: "TCP", "UDP", "SCTP".
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("Protocol(%d)", uint8(p))
}

// IANA is the protocol number in an IP header: 6, 17, 132, or 0 for an unknown protocol.
func (p Protocol) IANA() uint8 {
	switch p {
	case TCP:
		return 6
	case UDP:
		return 17
	case SCTP:
		return 132
	}
	return 0
}

// ParseProtocol reads what String writes.
func ParseProtocol(s string) (Protocol, error) {
	for _, p := range Protocols() {
		if p.String() == s {
			return p, nil
		}
	}
	return 0, fmt.Errorf("protocol %q: want TCP, UDP or SCTP", s)
}

// Scope names a part of a table by who else holds the same rows.
type Scope uint8

// The parts of a table.
const (
	Common Scope = iota // every node
	Zone                // every node of the zone
	Node                // this node alone

	numScopes = 3
)

// Scopes lists the parts in the order of messages and text.
func Scopes() []Scope { return []Scope{Common, Zone, Node} }

// String returns "common", "zone", "node" or "replica".
func (s Scope) String() string {
	switch s {
	case Common:
		return "common"
	case Zone:
		return "zone"
	case Node:
		return "node"
	case numScopes: // see ReplicaAudience
		return "replica"
	}
	return fmt.Sprintf("Scope(%d)", uint8(s))
}

func parseScope(s string) (Scope, error) {
	for _, sc := range Scopes() {
		if sc.String() == s {
			return sc, nil
		}
	}
	return 0, fmt.Errorf("scope %q: want common, zone or node", s)
}

// PortName names one port of one Service in one family. Port is the port's name in the Service, "" for an unnamed one.
type PortName struct {
	Namespace, Name, Port string
	Protocol              Protocol
	Family                Family
}

// String returns "namespace/name:port/TCP/IPv4", and "namespace/name:/TCP/IPv4" for an unnamed port.
func (n PortName) String() string {
	return n.Namespace + "/" + n.Name + ":" + n.Port + "/" + n.Protocol.String() + "/" + n.Family.String()
}

// Compare orders names by namespace, name, port, protocol, family.
func (n PortName) Compare(o PortName) int {
	if c := strings.Compare(n.Namespace, o.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(n.Name, o.Name); c != 0 {
		return c
	}
	if c := strings.Compare(n.Port, o.Port); c != 0 {
		return c
	}
	if n.Protocol != o.Protocol {
		return int(n.Protocol) - int(o.Protocol)
	}
	return int(n.Family) - int(o.Family)
}

// ParsePortName reads what PortName.String writes.
func ParsePortName(s string) (PortName, error) {
	bad := fmt.Errorf("service port %q: want namespace/name:port/PROTOCOL/FAMILY", s)
	f := strings.Split(s, "/")
	if len(f) != 4 {
		return PortName{}, bad
	}
	name, port, ok := strings.Cut(f[1], ":")
	if !ok || f[0] == "" || name == "" {
		return PortName{}, bad
	}
	proto, err := ParseProtocol(f[2])
	if err != nil {
		return PortName{}, fmt.Errorf("service port %q: %w", s, err)
	}
	n := PortName{Namespace: f[0], Name: name, Port: port, Protocol: proto}
	switch f[3] {
	case IPv4.String():
	case IPv6.String():
		n.Family = IPv6
	default:
		return PortName{}, bad
	}
	return n, nil
}

// ID identifies a ServicePort in keys: a hash of its name, equal on every replica.
type ID uint64

// String returns 16 hexadecimal digits.
func (id ID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// ID derives the ID. Two names may meet in one ID (by chance once in 2^32 names; by intent with about 2^32 tries among
// names of one's own): whoever builds a table must look for that.
func (n PortName) ID() ID {
	h := sha256.Sum256([]byte(n.Family.String() + "/" + n.Namespace + "/" + n.Name + "/" + n.Port + "/" + n.Protocol.String()))
	return ID(binary.BigEndian.Uint64(h[:8]))
}
