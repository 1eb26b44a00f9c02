package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/proto/fwd"
)

// machine runs plans as the kernel does: expressions on registers. It fails on anything that it does not know.
type machine struct {
	*language
	sets     map[string]Set
	chains   map[string]Chain
	elements map[place]Element
	local    []netip.Addr
}

func newMachine(c Config, f fwd.Family, t *fwd.Table) *machine {
	st := newState(newSettings(c, f, t))
	elements, whole := st.load(t, func(pool, frontend) []netip.AddrPort { return nil })
	m := &machine{language: st.settings.language, sets: map[string]Set{}, chains: map[string]Chain{}, elements: map[place]Element{}}
	for _, s := range whole.sets {
		m.sets[s.Name] = s
	}
	for _, c := range whole.chains {
		m.chains[c.Name] = c
	}
	for _, e := range elements {
		m.elements[e.place()] = e
	}
	return m
}

// packet is the first one of a connection, with how likely it is that it came this far.
type packet struct {
	saddr              netip.Addr
	to, original       netip.AddrPort
	protocol           fwd.Protocol
	in                 string
	mark               uint32
	translated, masked bool
	weight             float64
	registers          [64]byte
}

// end is a packet and why it went no further; "" is the end of a chain, or of a rule that matched without a verdict.
type end struct {
	packet
	verdict string
	// missed: the rule did not match.
	missed bool
}

const (
	accepted = "accept"
	dropped  = "drop"
	rejected = "reject"
)

// chain runs a chain, and returns all ends that it can come to.
func (m *machine) chain(name string, p packet) ([]end, error) {
	c, ok := m.chains[name]
	if !ok {
		return nil, fmt.Errorf("no chain %s", name)
	}
	alive, ends := []packet{p}, []end{}
	for _, r := range c.Rules {
		var next []packet
		for _, p := range alive {
			results, err := m.run(r.Exprs, p)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", name, r.Text, err)
			}
			for _, e := range results {
				if e.verdict == "" {
					next = append(next, e.packet)
				} else {
					ends = append(ends, e)
				}
			}
		}
		alive = merged(next)
	}
	for i := range ends {
		if ends[i].verdict == "return" {
			ends[i].verdict = ""
		}
	}
	for _, p := range alive {
		ends = append(ends, end{packet: p})
	}
	return ends, nil
}

// merged makes one packet of all that differ by their weight only.
func merged(ps []packet) []packet {
	var out []packet
	for _, p := range ps {
		p.registers = [64]byte{}
		i := slices.IndexFunc(out, func(o packet) bool { o.weight = p.weight; return o == p })
		if i < 0 {
			out = append(out, p)
		} else {
			out[i].weight += p.weight
		}
	}
	return out
}

// run runs a rule from some expression on.
func (m *machine) run(exprs []expr.Any, p packet) ([]end, error) {
	for i, e := range exprs {
		switch e := e.(type) {
		case *expr.Numgen:
			return m.draw(e, exprs[i+1:], p)
		case *expr.Verdict:
			return m.verdict(e.Kind, e.Chain, p)
		case *expr.Lookup:
			el, found, err := m.lookup(e, &p)
			switch {
			case err != nil:
				return nil, err
			case found == e.Invert:
				return []end{{packet: p, missed: true}}, nil
			case el.Jump != "":
				return m.verdict(expr.VerdictJump, el.Jump, p)
			}
		default:
			verdict, match, err := m.step(e, &p)
			if err != nil || !match || verdict != "" {
				return []end{{packet: p, verdict: verdict, missed: !match}}, err
			}
		}
	}
	return []end{{packet: p}}, nil
}

func (m *machine) draw(e *expr.Numgen, rest []expr.Any, p packet) ([]end, error) {
	var ends []end
	p.weight /= float64(e.Modulus)
	for n := range e.Modulus {
		one := p
		binary.NativeEndian.PutUint32(one.at(e.Register), n+e.Offset)
		results, err := m.run(rest, one)
		if err != nil {
			return nil, err
		}
		ends = append(ends, results...)
	}
	return ends, nil
}

func (m *machine) verdict(kind expr.VerdictKind, chain string, p packet) ([]end, error) {
	switch kind {
	case expr.VerdictDrop:
		return []end{{packet: p, verdict: dropped}}, nil
	case expr.VerdictReturn:
		return []end{{packet: p, verdict: "return"}}, nil
	case expr.VerdictJump:
		return m.chain(chain, p)
	case expr.VerdictGoto:
		ends, err := m.chain(chain, p)
		for i := range ends {
			if ends[i].verdict == "" {
				ends[i].verdict = "return"
			}
		}
		return ends, err
	default:
		return nil, fmt.Errorf("unknown verdict %d", kind)
	}
}

// at is the bytes of the registers from one on.
func (p *packet) at(register uint32) []byte {
	if register < unix.NFT_REG32_00 {
		return p.registers[(register-unix.NFT_REG_1)*16:]
	}
	return p.registers[(register-unix.NFT_REG32_00)*4:]
}

func (m *machine) lookup(e *expr.Lookup, p *packet) (Element, bool, error) {
	s, ok := m.sets[e.SetName]
	if !ok {
		return Element{}, false, fmt.Errorf("no set %s", e.SetName)
	}
	if s.isMap() != e.IsDestRegSet || s.Verdict != (e.IsDestRegSet && e.DestRegister == unix.NFT_REG_VERDICT) {
		return Element{}, false, fmt.Errorf("set %s is looked up as something else", e.SetName)
	}
	_, length := concatenated(s.Key)
	el, found := m.elements[place{s.Name, string(p.at(e.SourceRegister)[:length])}]
	if found && el.Jump == "" && e.IsDestRegSet {
		copy(p.at(e.DestRegister), el.Data)
	}
	return el, found, nil
}

// step does one expression that neither branches nor looks anything up.
func (m *machine) step(e expr.Any, p *packet) (verdict string, match bool, err error) {
	switch e := e.(type) {
	case *expr.Payload:
		copy(p.at(e.DestRegister), append(m.header(p, e.Base)[e.Offset:e.Offset+e.Len], make([]byte, 4)...)[:(e.Len+3)/4*4])
	case *expr.Meta:
		return "", true, p.meta(e)
	case *expr.Ct:
		return "", true, m.connection(e, p)
	case *expr.Bitwise:
		for i := range e.Len {
			p.at(e.DestRegister)[i] = p.at(e.SourceRegister)[i]&e.Mask[i] ^ e.Xor[i]
		}
	case *expr.Cmp:
		same := bytes.Equal(p.at(e.Register)[:len(e.Data)], e.Data)
		return "", same == (e.Op == expr.CmpOpEq), nil
	case *expr.Fib:
		addr, kind := p.to.Addr(), uint32(unix.RTN_UNICAST)
		if e.FlagSADDR {
			addr = p.saddr
		}
		if addr.IsLoopback() || slices.Contains(m.local, addr) {
			kind = unix.RTN_LOCAL
		}
		binary.NativeEndian.PutUint32(p.at(e.Register), kind)
	case *expr.NAT:
		addr, _ := netip.AddrFromSlice(p.at(e.RegAddrMin)[:m.family.Bits()/8])
		p.to, p.translated = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(p.at(e.RegProtoMin))), true
		return accepted, true, nil
	case *expr.Masq:
		p.masked = true
		return accepted, true, nil
	case *expr.Reject:
		return rejected, true, nil
	case *expr.Dynset:
	default:
		return "", false, fmt.Errorf("unknown expression %T", e)
	}
	return "", true, nil
}

func (m *machine) header(p *packet, base expr.PayloadBase) []byte {
	if base == expr.PayloadBaseTransportHeader {
		return binary.BigEndian.AppendUint16([]byte{0xff, 0xff}, p.to.Port())
	}
	length := map[fwd.Family]int{fwd.IPv4: 12, fwd.IPv6: 8}[m.family]
	return slices.Concat(make([]byte, length), p.saddr.AsSlice(), p.to.Addr().AsSlice())
}

func (p *packet) meta(e *expr.Meta) error {
	switch {
	case e.Key == expr.MetaKeyMARK && e.SourceRegister:
		p.mark = binary.NativeEndian.Uint32(p.at(e.Register))
	case e.Key == expr.MetaKeyMARK:
		binary.NativeEndian.PutUint32(p.at(e.Register), p.mark)
	case e.Key == expr.MetaKeyL4PROTO:
		copy(p.at(e.Register), []byte{p.protocol.IANA(), 0, 0, 0})
	case e.Key == expr.MetaKeyIIFNAME:
		copy(p.at(e.Register), append([]byte(p.in), make([]byte, unix.IFNAMSIZ-len(p.in))...))
	default:
		return fmt.Errorf("unknown meta key %d", e.Key)
	}
	return nil
}

func (m *machine) connection(e *expr.Ct, p *packet) error {
	switch e.Key {
	case expr.CtKeySTATUS:
		status := map[bool]uint32{true: 1 << 5}[p.translated]
		binary.NativeEndian.PutUint32(p.at(e.Register), status)
	case unix.NFT_CT_DST_IP, unix.NFT_CT_DST_IP6:
		copy(p.at(e.Register), p.original.Addr().AsSlice())
	case expr.CtKeyPROTODST:
		copy(p.at(e.Register), append(binary.BigEndian.AppendUint16(nil, p.original.Port()), 0, 0))
	default:
		return fmt.Errorf("unknown ct key %d", e.Key)
	}
	return nil
}
