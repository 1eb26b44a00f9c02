package nftables

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/proto/fwd"
)

// WritePlan writes what the backend would program for a table, one family, as text that nft loads. Equal input gives equal
// text.
func WritePlan(w io.Writer, c Config, f fwd.Family, t *fwd.Table) error {
	if err := c.Validate(); err != nil {
		return err
	}
	st := newState(newSettings(c, f, t))
	elements, whole := st.load(t, func(pool, frontend) []netip.AddrPort { return nil })
	if _, err := io.WriteString(w, st.settings.planText(elements, whole)); err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	return nil
}

func (l *language) planText(elements []Element, st structure) string {
	bySet := map[string][]Element{}
	for _, e := range elements {
		bySet[e.Set] = append(bySet[e.Set], e)
	}
	slices.SortFunc(st.sets, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(st.chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", l.ip, tableName)
	// nft wants chains to be there before others lead to them.
	for _, c := range st.chains {
		c.Rules = nil
		c.write(&b)
	}
	for _, s := range st.sets {
		l.writeSet(&b, s, bySet[s.Name])
	}
	for _, c := range st.chains {
		c.write(&b)
	}
	b.WriteString("}\n")
	return b.String()
}

func (c Chain) write(b *strings.Builder) {
	fmt.Fprintf(b, "\tchain %s {\n", c.Name)
	if c.Hook != nil {
		fmt.Fprintf(b, "\t\ttype nat hook %s priority %d; policy accept;\n", c.Hook.name, c.Hook.priority)
	}
	b.WriteString(indent(c.rulesText()) + "\t}\n")
}

func indent(lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		b.WriteString("\t\t" + line)
	}
	return b.String()
}

func (l *language) writeSet(b *strings.Builder, s Set, elements []Element) {
	kind, data := "set", ""
	switch {
	case s.Verdict:
		kind, data = "map", " : verdict"
	case s.isMap():
		kind, data = "map", " : "+typeofText(s.Data)
	}
	fmt.Fprintf(b, "\t%s %s {\n\t\ttypeof %s%s\n", kind, s.Name, typeofText(s.Key), data)
	if s.Clients {
		fmt.Fprintf(b, "\t\tsize %d\n\t\tflags dynamic,timeout\n", clientsSize)
	}
	slices.SortFunc(elements, Element.compare)
	elements = slices.CompactFunc(elements, func(a, b Element) bool { return a.Key == b.Key })
	for i, e := range elements {
		lead, end := "\t\t\t", ",\n"
		if i == 0 {
			lead = "\t\telements = { "
		}
		if i == len(elements)-1 {
			end = " }\n"
		}
		b.WriteString(lead + fieldsText(s.Key, e.Key) + e.valueText(s) + end)
	}
	b.WriteString("\t}\n")
}

func (e Element) valueText(s Set) string {
	switch {
	case s.Verdict:
		return " : jump " + e.Jump
	case s.isMap():
		return " : " + fieldsText(s.Data, e.Data)
	}
	return ""
}

// fieldsText prints a key or data; bytes that do not fit are printed as they are.
func fieldsText(fields []field, value string) string {
	var texts []string
	rest := value
	for _, f := range fields {
		n := f.words() * wordSize
		if len(fields) == 1 {
			n = f.size
		}
		if len(rest) < n {
			return fmt.Sprintf("0x%x", value)
		}
		texts = append(texts, f.valueText([]byte(rest[:f.size])))
		rest = rest[n:]
	}
	return strings.Join(texts, " . ")
}

func (f field) valueText(b []byte) string {
	switch f.kind {
	case kindIPv4, kindIPv6:
		addr, _ := netip.AddrFromSlice(b)
		return addr.String()
	case kindProto:
		if name, ok := map[byte]string{6: "tcp", 17: "udp", 132: "sctp"}[b[0]]; ok {
			return name
		}
		return itoa(int(b[0]))
	case kindService:
		return itoa(int(binary.BigEndian.Uint16(b)))
	}
	return itoa(int(binary.NativeEndian.Uint32(b)))
}

// keyText prints an element's key in the words of its set's definition.
func (l *language) keyText(e Element, st structure) string {
	i := slices.IndexFunc(st.sets, func(s Set) bool { return s.Name == e.Set })
	if i < 0 {
		return fmt.Sprintf("0x%x", e.Key)
	}
	return fieldsText(st.sets[i].Key, e.Key)
}

// typeofText prints the fields as a set's definition has them.
func typeofText(fields []field) string {
	var texts []string
	for _, f := range fields {
		texts = append(texts, strings.TrimPrefix(f.text, "ct original "))
	}
	return strings.ReplaceAll(strings.Join(texts, " . "), "proto-dst", "th dport")
}
