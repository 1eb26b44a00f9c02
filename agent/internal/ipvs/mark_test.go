package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
)

// TestMarks holds that marks are unique where there are node ports, are told from others, and leave the bits alone that other
// programs may look at or change.
func TestMarks(t *testing.T) {
	seen := map[uint32]bool{}
	for _, protocol := range fwd.Protocols() {
		for port := range 1 << 16 {
			p := &fwd.Port{ServicePort: fwd.ServicePort{NodePort: uint16(port)}}
			p.Protocol = protocol
			mark := markOf(p)
			o, ok := markServer(fwd.IPv4, mark)
			if seen[mark] || !ok || o.protocol != protocol || o.mark != mark {
				t.Fatalf("%v %d: mark %#x, taken %t, ours %t, of %v", protocol, port, mark, seen[mark], ok, o.protocol)
			}
			seen[mark] = true
			if mark&0xe000 != 0 || mark&0xf0000 != 0x10000 || mark>>31 != 0 {
				t.Fatalf("%v %d: mark %#x", protocol, port, mark)
			}
		}
	}
	for _, foreign := range []uint32{0, 7, 0x2000, 0x4000, 0x8000, 0x10000, markTag, markTag | 0x2000, ^uint32(0), 0x55910000} {
		if o, ok := markServer(fwd.IPv6, foreign); ok {
			t.Errorf("%#x is taken for one of ours: %v", foreign, o)
		}
	}
}

// TestMarksMeet holds that of Service ports whose marks meet none has a virtual server by mark, that their owners are told how
// to help it, and that it comes back with the end of one of them. Two of so many names meet, since marks have 18 bits of them.
func TestMarksMeet(t *testing.T) {
	const format = "service default/s%d:/TCP/IPv4 load-balancer-ips=203.0.113.%d port=80 external-local usable\n  common 10.244.2.5:8080\n"
	named := map[uint32]int{}
	var one, two string
	var mark uint32
	for i := 0; two == ""; i++ {
		text := fmt.Sprintf(format, i, 1)
		for _, p := range parseTable(t, text).Ports() {
			mark = markOf(p)
		}
		if other, ok := named[mark]; ok {
			one, two = fmt.Sprintf(format, other, 1), fmt.Sprintf(format, i, 2)
		}
		named[mark] = i
	}
	o, _ := markServer(fwd.IPv4, mark)
	s := &settings{config: Defaults()}
	alone, both := parseTable(t, one), parseTable(t, one+two)
	l := newLayout(s, alone)
	told := func() (list []string) {
		for _, p := range l.table.Ports() {
			for _, n := range l.notices(p) {
				list = append(list, n.Name+" "+n.Reason+" "+n.Message)
			}
		}
		return list
	}
	if v, ok := l.value(o); !ok || len(v.servers) != 1 || len(told()) != 0 {
		t.Errorf("alone: %v, planned %t, notices %v", v, ok, told())
	}
	now, changed, err := alone.Apply(fwd.DiffTables(alone, both))
	if err != nil {
		t.Fatal(err)
	}
	if touched := l.update(now, changed.Ports); !touched[o] {
		t.Error("the virtual server is not looked at when a mark is taken")
	}
	helps := func(n string) bool {
		return strings.Contains(n, "MarkTaken") && strings.Contains(n, "give one of them a node port")
	}
	if _, ok := l.value(o); ok || len(told()) != 2 || !slices.ContainsFunc(told(), helps) {
		t.Errorf("two: planned %t, notices %v", ok, told())
	}
	back, changed, err := now.Apply(fwd.DiffTables(now, alone))
	if err != nil {
		t.Fatal(err)
	}
	if touched := l.update(back, changed.Ports); !touched[o] {
		t.Error("the virtual server is not looked at when a mark is free again")
	}
	if _, ok := l.value(o); !ok || len(told()) != 0 {
		t.Errorf("alone again: planned %t, notices %v", ok, told())
	}
}

// TestSticky holds that local clients of a Service port with affinity have a scheduler that gives each its endpoint, as good as
// the kernel has it.
func TestSticky(t *testing.T) {
	table := parseTable(t, "service default/sticky:/TCP/IPv4 load-balancer-ips=203.0.113.1 port=80 node-port=30080 affinity-seconds=60 external-local usable\n"+
		"  common 10.244.2.5:8080\n")
	at := object{kind: server, protocol: fwd.TCP, addr: netip.MustParseAddrPort("203.0.113.1:80")}
	for want, missing := range map[string]map[string]bool{"mh": nil, "sh": {"mh": true}, "rr": {"mh": true, "sh": true}} {
		l := newLayout(&settings{config: Defaults(), missing: missing}, table)
		for _, p := range table.Ports() {
			o, _ := markServer(fwd.IPv4, markOf(p))
			if v, ok := l.value(o); !ok || v.scheduler != want || v.affinity != 0 {
				t.Errorf("without %v: %+v, planned %t, want %s", missing, v, ok, want)
			}
		}
		if v, ok := l.value(at); !ok || v.scheduler != "rr" || v.affinity != 60 {
			t.Errorf("at the address: %+v, planned %t", v, ok)
		}
	}
}
