package iptables

import (
	"fmt"
	"strconv"

	"github.com/fairlead/fairlead/proto/fwd"
)

// appendRule writes the rule as the options of one iptables-restore line, without "-A chain". Equal rules have equal
// text, and ParseRule reads it back.
func appendRule(b []byte, f fwd.Family, r Rule) []byte {
	b = appendAddrMatch(b, "-s", r.Src)
	b = appendAddrMatch(b, "-d", r.Dst)
	if r.In != "" {
		b = append(append(b, " -i "...), r.In...)
	}
	b = appendProtocol(b, r)
	b = appendMatches(b, f, r)
	if r.Comment != "" {
		b = fmt.Appendf(b, " -m comment --comment %q", r.Comment)
	}
	return appendVerdict(b, f, r)
}

func appendAddrMatch(b []byte, option string, m AddrMatch) []byte {
	if !m.Addr.IsValid() {
		return b
	}
	if m.Not {
		b = append(b, " !"...)
	}
	b = append(append(b, ' '), option...)
	b = m.Addr.AppendTo(append(b, ' '))
	b = append(b, '/')
	if bits, ok := m.prefixBits(); ok {
		return strconv.AppendInt(b, int64(bits), 10)
	}
	return m.Mask.AppendTo(b)
}

func appendProtocol(b []byte, r Rule) []byte {
	name := protocolName(r.Protocol)
	if name == "" {
		return b
	}
	b = append(append(b, " -p "...), name...)
	if r.DPort == (PortRange{}) {
		return b
	}
	b = append(append(append(b, " -m "...), name...), " --dport "...)
	b = strconv.AppendUint(b, uint64(r.DPort.Low), 10)
	if r.DPort.High != r.DPort.Low {
		b = strconv.AppendUint(append(b, ':'), uint64(r.DPort.High), 10)
	}
	return b
}

func appendMatches(b []byte, f fwd.Family, r Rule) []byte {
	if r.SrcLocal {
		b = append(b, " -m addrtype --src-type LOCAL"...)
	}
	if r.DstLocal {
		b = append(b, " -m addrtype --dst-type LOCAL"...)
	}
	if r.State.States != 0 {
		b = append(append(append(b, " -m conntrack"...), not(r.State.Not)...), " --ctstate "...)
		b = appendStates(b, r.State.States)
	}
	if r.Mark.Mask != 0 {
		b = append(append(append(b, " -m mark"...), not(r.Mark.Not)...), " --mark "...)
		b = appendMark(b, r.Mark.MarkValue)
	}
	if r.SameAddr {
		b = fmt.Appendf(b, " -m bpf --bytecode %q", sameAddrProgram(f))
	}
	// The list is told of a client only after chance has chosen, so the order of these two matters.
	if r.Probability != 0 {
		b = append(b, " -m statistic --mode random --probability "...)
		b = strconv.AppendFloat(b, float64(r.Probability)/certain, 'f', 11, 64)
	}
	if r.Recent.Name != "" {
		b = append(b, " -m recent"...)
		if r.Recent.Seconds > 0 {
			b = fmt.Appendf(b, " --update --seconds %d --reap", r.Recent.Seconds)
		} else {
			b = append(b, " --set"...)
		}
		b = fmt.Appendf(b, " --name %s --mask %s --rsource", r.Recent.Name, hostMask(f))
	}
	return b
}

func appendVerdict(b []byte, f fwd.Family, r Rule) []byte {
	switch r.Verdict {
	case None:
		return b
	case Jump:
		return append(append(b, " -j "...), r.Chain...)
	case Goto:
		return append(append(b, " -g "...), r.Chain...)
	case Accept, Drop, Reject, Return, MarkPacket, DNAT, Masquerade:
	}
	b = append(append(b, " -j "...), verdictName(r.Verdict)...)
	switch {
	case r.Verdict == Reject:
		b = append(append(b, " --reject-with "...), rejectWith(f, r.Protocol)...)
	case r.Verdict == MarkPacket:
		b = appendMark(append(b, " --set-xmark "...), r.SetMark)
	case r.Verdict == DNAT:
		b = r.To.AppendTo(append(b, " --to-destination "...))
	case r.Verdict == Masquerade && r.RandomFully:
		b = append(b, " --random-fully"...)
	}
	return b
}

func appendStates(b []byte, states ConnState) []byte {
	first := true
	for _, s := range stateNames() {
		if states&s.state == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		b, first = append(b, s.name...), false
	}
	return b
}

func appendMark(b []byte, m MarkValue) []byte {
	return fmt.Appendf(b, "%#x/%#x", m.Value, m.Mask)
}

func not(is bool) string {
	if is {
		return " !"
	}
	return ""
}

// maxComment is below the 255 characters that the comment match takes.
const maxComment = 200

// comment makes a text fit for a comment: letters, digits and . _ : / - stay, the rest becomes _.
func comment(text string) string {
	b := []byte(text)
	if len(b) > maxComment {
		b = b[:maxComment]
	}
	for i, c := range b {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '-' || c > ':') && c != '_' { // '-' to ':' are - . / 0-9 :
			b[i] = '_'
		}
	}
	return string(b)
}
