package nftrace

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// field is a part of a key: what is known of a packet, as text.
type field struct {
	// typeof is how definitions of sets call it.
	typeof string
	of     func(*walk) string
	// modulus: the field is a random number below it.
	modulus int
}

// anySlot is how sets define random numbers, whichever rules draw.
const anySlot = "numgen random mod 65536"

// key eats fields that are joined by dots.
func (p *ruleParser) key() ([]field, error) {
	var fields []field
	for {
		f, err := p.field()
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
		if !p.eat(".") {
			return fields, nil
		}
	}
}

func (p *ruleParser) field() (field, error) {
	ip := map[fwd.Family]string{fwd.IPv4: "ip", fwd.IPv6: "ip6"}[p.rules.family]
	switch {
	case p.eat(ip, "saddr"):
		return p.masked(field{typeof: ip + " saddr"}, func(w *walk) netip.Addr { return w.packet.Src })
	case p.eat(ip, "daddr"):
		return p.masked(field{typeof: ip + " daddr"}, func(w *walk) netip.Addr { return w.packet.Dst })
	case p.eat("ct", "original", ip, "daddr"):
		return p.masked(field{typeof: ip + " daddr"}, func(w *walk) netip.Addr { return w.original.Dst })
	case p.eat("meta", "l4proto"):
		return field{typeof: "meta l4proto", of: func(w *walk) string { return strings.ToLower(w.packet.Protocol.String()) }}, nil
	case p.eat("th", "dport"):
		return field{typeof: "th dport", of: func(w *walk) string { return strconv.Itoa(int(w.packet.DPort)) }}, nil
	case p.eat("ct", "original", "proto-dst"):
		return field{typeof: "th dport", of: func(w *walk) string { return strconv.Itoa(int(w.original.DPort)) }}, nil
	case p.eat("numgen", "random", "mod"):
		n, err := strconv.Atoi(p.next())
		if err != nil || n < 1 {
			return field{}, fmt.Errorf("random number below %d: want one below a positive number", n)
		}
		return field{typeof: anySlot, modulus: n}, nil
	}
	return field{}, fmt.Errorf("unknown expression %q", strings.Join(p.words, " "))
}

// masked is an address, of which a mask may follow.
func (p *ruleParser) masked(f field, of func(*walk) netip.Addr) (field, error) {
	f.of = func(w *walk) string { return of(w).String() }
	if !p.eat("&") {
		return f, nil
	}
	mask, err := netip.ParseAddr(p.next())
	if err != nil || fwd.FamilyOf(mask) != p.rules.family {
		return f, fmt.Errorf("mask: want one of %v", p.rules.family)
	}
	bits := mask.AsSlice()
	f.of = func(w *walk) string {
		b := of(w).AsSlice()
		for i := range b {
			b[i] &= bits[i]
		}
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	}
	return f, nil
}

// typeofText is how a set with such a key is defined.
func typeofText(fields []field) string {
	var names []string
	for _, f := range fields {
		names = append(names, f.typeof)
	}
	return strings.Join(names, " . ")
}

// keyText is the key of a packet; random numbers are left out.
func keyText(w *walk, fields []field) string {
	var texts []string
	for _, f := range fields {
		if f.modulus == 0 {
			texts = append(texts, f.of(w))
		}
	}
	return strings.Join(texts, " . ")
}
