package iptrace

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// matches says how likely the rule is to match: 0, 1, or what chance makes of it.
func (w *walker) matches(r rule, p packet) (float64, error) {
	likely := 1.0
	for _, c := range r.conditions {
		holds, err := w.holds(c, p)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", r.line, err)
		}
		if c.not {
			holds = 1 - holds
		}
		if likely *= holds; likely == 0 {
			return 0, nil
		}
	}
	return likely, nil
}

func (w *walker) holds(c condition, p packet) (float64, error) {
	switch c.module + c.option {
	case "-s":
		return masked(p.src, c.value)
	case "-d":
		return masked(p.dst.Addr(), c.value)
	case "-i":
		name, rest := strings.CutSuffix(c.value, "+")
		return truth(p.in == c.value || rest && strings.HasPrefix(p.in, name))
	case "-p":
		return truth(c.value == strings.ToLower(p.protocol.String()) || c.value == strconv.Itoa(int(p.protocol.IANA())))
	case "tcp--dport", "udp--dport", "sctp--dport":
		if c.module != strings.ToLower(p.protocol.String()) {
			return 0, nil
		}
		return inRange(p.dst.Port(), c.value)
	case "addrtype--src-type", "addrtype--dst-type":
		a := p.src
		if c.option == "--dst-type" {
			a = p.dst.Addr()
		}
		if c.value != "LOCAL" {
			return 0, fmt.Errorf("address type %s: unknown", c.value)
		}
		return truth(w.local(a))
	case "conntrack--ctstate":
		return state(p, c.value)
	case "mark--mark":
		v, mask, err := markAndMask(c.value)
		return boolean(p.mark&mask == v), err
	case "comment--comment", "nfacct--nfacct-name", "statistic--mode":
		return 1, nil
	case "statistic--probability":
		v, err := strconv.ParseFloat(c.value, 64)
		return v, err
	case "recent--set", "recent--seconds", "recent--reap", "recent--name", "recent--mask", "recent--rsource":
		return 1, nil
	case "recent--update", "recent--rcheck":
		return 0, nil // the client is new
	case "bpf--bytecode":
		return program(c.value, p)
	}
	return 0, fmt.Errorf("match %q, option %q: unknown", c.module, c.option)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func truth(b bool) (float64, error) { return boolean(b), nil }

// masked compares with ADDRESS/BITS or ADDRESS/MASK.
func masked(a netip.Addr, value string) (float64, error) {
	addr, mask, hasMask := strings.Cut(value, "/")
	want, err := netip.ParseAddr(addr)
	if err != nil {
		return 0, err
	}
	if bits, err := strconv.Atoi(mask); err == nil || !hasMask {
		if !hasMask {
			bits = want.BitLen()
		}
		return truth(netip.PrefixFrom(want, bits).Masked().Contains(a))
	}
	m, err := netip.ParseAddr(mask)
	if err != nil {
		return 0, err
	}
	x, y, z := a.AsSlice(), want.AsSlice(), m.AsSlice()
	if len(x) != len(y) || len(x) != len(z) {
		return 0, fmt.Errorf("%s: another family than %v", value, a)
	}
	for i := range x {
		if x[i]&z[i] != y[i] {
			return 0, nil
		}
	}
	return 1, nil
}

func inRange(port uint16, value string) (float64, error) {
	low, high, ranged := strings.Cut(value, ":")
	if !ranged {
		high = low
	}
	l, err := strconv.Atoi(low)
	if err != nil {
		return 0, err
	}
	h, err := strconv.Atoi(high)
	return boolean(int(port) >= l && int(port) <= h), err
}

// state knows the first packet of a connection: it is NEW, and DNAT once it has been translated.
func state(p packet, value string) (float64, error) {
	known := []string{"INVALID", "NEW", "RELATED", "ESTABLISHED", "DNAT"}
	for s := range strings.SplitSeq(value, ",") {
		if !slices.Contains(known, s) {
			return 0, fmt.Errorf("state %s: unknown", s)
		}
		if s == "NEW" || s == "DNAT" && p.translated {
			return 1, nil
		}
	}
	return 0, nil
}

func markAndMask(value string) (v, mask uint32, err error) {
	text, maskText, hasMask := strings.Cut(value, "/")
	n, err := strconv.ParseUint(text, 0, 32)
	if err != nil || !hasMask {
		return uint32(n), math.MaxUint32, err
	}
	m, err := strconv.ParseUint(maskText, 0, 32)
	return uint32(n), uint32(m), err
}

// program runs classic BPF (the few instructions that are in use) over the packet's IP header.
func program(text string, p packet) (float64, error) {
	header := make([]byte, 40)
	if p.src.Is4() {
		copy(header[12:], p.src.AsSlice())
		copy(header[16:], p.dst.Addr().AsSlice())
	} else {
		copy(header[8:], p.src.AsSlice())
		copy(header[24:], p.dst.Addr().AsSlice())
	}
	code := strings.Split(text, ",")[1:]
	var a, x uint32
	for i := 0; i < len(code); i++ {
		var op, jumpTrue, jumpFalse, k int
		if _, err := fmt.Sscanf(code[i], "%d %d %d %d", &op, &jumpTrue, &jumpFalse, &k); err != nil {
			return 0, fmt.Errorf("bpf instruction %q: %w", code[i], err)
		}
		switch op {
		case 0x20: // load a word
			a = binary.BigEndian.Uint32(header[k:])
		case 0x07: // move it to the index register
			x = a
		case 0x1d: // compare both
			if a == x {
				i += jumpTrue
			} else {
				i += jumpFalse
			}
		case 0x06:
			return truth(k != 0)
		default:
			return 0, fmt.Errorf("bpf instruction %q: unknown", code[i])
		}
	}
	return 0, fmt.Errorf("bpf program %q: does not end", text)
}
