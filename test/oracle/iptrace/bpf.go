package iptrace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// instruction is one of classic BPF, as xt_bpf takes them in decimal.
type instruction struct{ code, jumpTrue, jumpFalse, k uint32 }

// The operations of classic BPF that are known, by their codes in linux/bpf_common.h.
const (
	loadWord   = 0x20 // A = word at offset k
	moveToX    = 0x07 // X = A
	jumpEqualX = 0x1d // A == X
	jumpEqualK = 0x15 // A == k
	giveBack   = 0x06 // return k
)

// bpf runs the bytecode on the packet's header.
func (p *ruleParser) bpf() (match, error) {
	if o := p.next(); o != "--bytecode" {
		return nil, fmt.Errorf("unknown option %s", o)
	}
	program, err := parseProgram(p.next())
	if err != nil {
		return nil, err
	}
	return func(w *walk) bool { return run(program, header(w.packet.Src, w.packet.Dst)) != 0 }, nil
}

// parseProgram reads "COUNT,CODE JT JF K,…" and refuses what run would not understand, and jumps out of the program.
func parseProgram(text string) ([]instruction, error) {
	lines := strings.Split(text, ",")
	program := make([]instruction, 0, len(lines))
	for i, line := range lines[1:] {
		var fields [4]uint32
		words := strings.Fields(line)
		if len(words) != len(fields) {
			return nil, fmt.Errorf("instruction %d: want four numbers", i)
		}
		for j, w := range words {
			n, err := strconv.ParseUint(w, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("instruction %d: %w", i, err)
			}
			fields[j] = uint32(n)
		}
		in := instruction{fields[0], fields[1], fields[2], fields[3]}
		switch in.code {
		case loadWord, moveToX, jumpEqualX, jumpEqualK, giveBack:
		default:
			return nil, fmt.Errorf("instruction %d: unknown code %d", i, in.code)
		}
		if last := len(lines) - 2; i+1+int(max(in.jumpTrue, in.jumpFalse)) > last && in.code != giveBack {
			return nil, fmt.Errorf("instruction %d: leaves the program", i)
		}
		program = append(program, in)
	}
	if count, err := strconv.Atoi(lines[0]); err != nil || count != len(program) || count == 0 {
		return nil, errors.New("want the number of instructions first")
	}
	return program, nil
}

func run(program []instruction, packet []byte) uint32 {
	var a, x uint32
	for i := 0; ; i++ {
		switch in := program[i]; in.code {
		case loadWord:
			if int(in.k)+4 > len(packet) {
				return 0
			}
			a = binary.BigEndian.Uint32(packet[in.k:])
		case moveToX:
			x = a
		case jumpEqualX, jumpEqualK:
			other := x
			if in.code == jumpEqualK {
				other = in.k
			}
			if a == other {
				i += int(in.jumpTrue)
			} else {
				i += int(in.jumpFalse)
			}
		default:
			return in.k
		}
	}
}

// header is an IP header with nothing but its addresses.
func header(src, dst netip.Addr) []byte {
	at, length := 12, 20
	if src.Is6() {
		at, length = 8, 40
	}
	h := make([]byte, length)
	copy(h[at:], src.AsSlice())
	copy(h[at+len(src.AsSlice()):], dst.AsSlice())
	return h
}
