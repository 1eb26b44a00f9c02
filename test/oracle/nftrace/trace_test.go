package nftrace

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/oracle/journey"
)

// surroundings are chains and sets that rules of tests use.
const surroundings = `
	set virtual {
		typeof ip daddr . meta l4proto . th dport
		elements = { 10.96.0.1 . tcp . 80,
			10.96.0.2 . udp . 80 }
	}
	map endpoints {
		typeof ip daddr . meta l4proto . th dport . numgen random mod 65536 : ip daddr . th dport
		elements = { 10.96.0.1 . tcp . 80 . 0 : 10.0.0.1 . 8080,
			10.96.0.1 . tcp . 80 . 1 : 10.0.0.2 . 8080,
			10.96.0.1 . tcp . 80 . 2 : 10.0.0.3 . 8080 }
	}
	set ranges {
		typeof ip saddr
		elements = { 198.18.0.0 }
	}
	map sticky {
		typeof ip daddr . meta l4proto . th dport : verdict
		elements = { 10.96.0.1 . tcp . 80 : jump known }
	}
	map learn {
		typeof ip daddr . meta l4proto . th dport : verdict
		elements = { 10.96.0.1 . tcp . 80 : jump remember }
	}
	map clients {
		typeof ip saddr : ip daddr . th dport
		size 1048576
		flags dynamic,timeout
	}
	chain known {
		dnat ip to ip saddr map @clients
	}
	chain remember {
		update @clients { ip saddr timeout 60s : ip daddr . th dport }
	}
	chain ends {
		return
		drop
	}
	chain nothing {
	}
`

// table is a table of IPv4 with base chains of these rules, one line each.
func table(hooks map[string]string) string {
	var b strings.Builder
	b.WriteString("# a table\ntable ip fairlead {\n" + surroundings)
	for _, hook := range []string{"prerouting", "input", "output", "postrouting"} {
		b.WriteString("\tchain " + hook + " {\n\t\ttype nat hook " + hook + " priority 95; policy accept;\n" + hooks[hook] + "\n\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func packet(in, src, dst string, port uint16) journey.Packet {
	return journey.Packet{In: in, Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: fwd.TCP, DPort: port}
}

func trace(t *testing.T, hooks map[string]string, p journey.Packet, m journey.Memory) []journey.Result {
	t.Helper()
	r, err := Parse(fwd.IPv4, table(hooks))
	if err != nil {
		t.Fatal(err)
	}
	results, err := r.Trace(journey.Host{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, p, m)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func outcomes(results []journey.Result) string {
	var lines []string
	for _, r := range results {
		lines = append(lines, r.String())
	}
	return strings.Join(lines, "; ")
}

const translate = "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 1 map @endpoints"

func TestTrace(t *testing.T) {
	external := packet("eth0", "198.18.0.1", "10.96.0.1", 80)
	for _, c := range []struct {
		name   string
		hooks  map[string]string
		packet journey.Packet
		want   string
	}{
		{"no rule", nil, external, "passed"},
		{"translation", map[string]string{"prerouting": translate}, external, "passed to 10.0.0.1:8080"},
		{"translation ends the hook", map[string]string{"prerouting": translate + "\ndrop"}, external, "passed to 10.0.0.1:8080"},
		{"a miss goes on", map[string]string{"prerouting": translate + "\ndrop"}, packet("eth0", "198.18.0.1", "10.96.0.9", 80), "dropped"},
		{"in a set", map[string]string{"prerouting": "ip daddr . meta l4proto . th dport @virtual drop"}, external, "dropped"},
		{"another protocol", map[string]string{"prerouting": "ip daddr . meta l4proto . th dport @virtual drop"}, packet("eth0", "198.18.0.1", "10.96.0.2", 80), "passed"},
		{"not in a set", map[string]string{"prerouting": "ip daddr . meta l4proto . th dport != @virtual drop"}, external, "passed"},
		{"address", map[string]string{"prerouting": "ip daddr 10.96.0.1 drop"}, external, "dropped"},
		{"prefix", map[string]string{"prerouting": "ip saddr 198.18.0.0/15 drop"}, external, "dropped"},
		{"another prefix", map[string]string{"prerouting": "ip saddr 198.20.0.0/15 drop"}, external, "passed"},
		{"mask", map[string]string{"prerouting": "ip saddr & 255.255.255.0 @ranges drop"}, external, "dropped"},
		{"protocol", map[string]string{"prerouting": "meta l4proto udp drop"}, external, "passed"},
		{"device", map[string]string{"prerouting": `iifname "eth0" drop`}, external, "dropped"},
		{"devices", map[string]string{"prerouting": `iifname "veth*" drop`}, external, "passed"},
		{"local source", map[string]string{"output": "fib saddr type local drop"}, packet("", "192.0.2.1", "10.96.0.1", 80), "dropped"},
		{"foreign destination", map[string]string{"output": "fib daddr type local drop"}, packet("", "192.0.2.1", "10.96.0.1", 80), "passed"},
		{"jump and return", map[string]string{"prerouting": "jump ends\nmeta l4proto tcp reject with tcp reset"}, external, "rejected"},
		{"a goto does not come back", map[string]string{"prerouting": "goto nothing\ndrop"}, external, "passed"},
		{"marked and hidden", map[string]string{
			"prerouting": "meta mark set meta mark | 0x00004000\n" + translate,
			"postrouting": "meta mark & 0x00008000 != 0x00000000 drop\nct status dnat meta mark & 0x00004000 != 0x00000000 meta mark set meta mark & 0xffffbfff " +
				"masquerade fully-random",
		}, external, "passed to 10.0.0.1:8080, masqueraded"},
		{"a mark that stays", map[string]string{"prerouting": "meta mark set meta mark | 0x00004000"}, external, "passed, mark 0x4000"},
		{"not translated", map[string]string{"postrouting": "ct status dnat masquerade fully-random"}, external, "passed"},
		{"for the host", map[string]string{"input": "reject"}, packet("eth0", "198.18.0.1", "192.0.2.1", 80), "rejected"},
		{"the host to itself", map[string]string{"input": "drop", "prerouting": "drop"}, packet("", "192.0.2.1", "192.0.2.1", 80), "passed"},
		{"the original destination", map[string]string{
			"prerouting": translate, "postrouting": "ct original ip daddr . meta l4proto . ct original proto-dst @virtual drop",
		}, external, "dropped"},
		{"verdict map", map[string]string{"prerouting": "ip daddr . meta l4proto . th dport vmap @sticky\ndrop"}, external, "dropped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := outcomes(trace(t, c.hooks, c.packet, nil)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestChance: four slots, of which three are filled.
func TestChance(t *testing.T) {
	draw := strings.Replace(translate, "mod 1", "mod 4", 1)
	results := trace(t, map[string]string{"prerouting": draw + "\n" + draw + "\ndrop"}, packet("eth0", "198.18.0.1", "10.96.0.1", 80), nil)
	got := map[string]float64{}
	for _, r := range results {
		got[r.String()] += r.Probability
	}
	for what, want := range map[string]float64{
		"passed to 10.0.0.1:8080": .3125, "passed to 10.0.0.2:8080": .3125, "passed to 10.0.0.3:8080": .3125, "dropped": .0625,
	} {
		if math.Abs(got[what]-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", what, got[what], want)
		}
	}
}

func TestAffinity(t *testing.T) {
	hooks := map[string]string{
		"prerouting":  "ip daddr . meta l4proto . th dport vmap @sticky\n" + translate,
		"postrouting": "ct status dnat ct original ip daddr . meta l4proto . ct original proto-dst vmap @learn",
	}
	from := packet("eth0", "198.18.0.1", "10.96.0.1", 80)
	first := trace(t, hooks, from, nil)
	if len(first) != 1 || !slices.Equal(first[0].Remembered, []string{"clients 10.0.0.1 . 8080"}) {
		t.Fatalf("a new client: %+v", first)
	}
	for age, want := range map[uint32]string{60: "passed to 10.0.0.3:8080", 61: "passed to 10.0.0.1:8080"} {
		if got := outcomes(trace(t, hooks, from, journey.Memory{"clients 10.0.0.3 . 8080": age})); got != want {
			t.Errorf("a client of %d s ago: %s, want %s", age, got, want)
		}
	}
}

// TestKnownConnections do not meet chains of type nat.
func TestKnownConnections(t *testing.T) {
	for state, want := range map[journey.State]string{journey.Established: "passed", journey.Invalid: "passed", journey.New: "dropped"} {
		p := packet("eth0", "198.18.0.1", "10.96.0.1", 80)
		p.State = state
		if got := outcomes(trace(t, map[string]string{"prerouting": "drop"}, p, nil)); got != want {
			t.Errorf("%s: %s, want %s", state, got, want)
		}
	}
}

// TestParseRefuses holds the promise that nothing is passed over.
func TestParseRefuses(t *testing.T) {
	for _, line := range []string{
		"jump nowhere",
		"counter drop",
		"accept",
		"ip daddr 10.96.0.1 tcp dport 80 drop",
		"th dport 80 drop",
		"ip6 daddr fd00::1 drop",
		"ip daddr . meta l4proto . th dport @nothing drop",
		"ip daddr . th dport @virtual drop",
		"ip daddr . meta l4proto . th dport @endpoints drop",
		"ip daddr . meta l4proto . th dport vmap @virtual",
		"ip daddr { 10.0.0.1 } drop",
		"ip daddr 10.0.0.0/33 drop",
		"meta l4proto icmp drop",
		"meta mark set 0x1",
		"meta mark & 0x1 == 0x1 drop",
		"ct state new drop",
		"masquerade",
		"dnat ip to 10.0.0.1",
		"dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 0 map @endpoints",
		"dnat ip to ip daddr . meta l4proto . th dport map @endpoints",
		"update @endpoints { ip saddr timeout 60s : ip daddr . th dport }",
		"update @clients { ip saddr : ip daddr . th dport }",
		"fib daddr type broadcast drop",
		"iifname eth0 drop",
	} {
		if _, err := Parse(fwd.IPv4, table(map[string]string{"prerouting": line})); err == nil {
			t.Errorf("%s: no error", line)
		}
	}
	for name, text := range map[string]string{
		"another table":            strings.Replace(table(nil), "table ip fairlead", "table ip filter", 1),
		"another family":           strings.Replace(table(nil), "table ip fairlead", "table ip6 fairlead", 1),
		"another policy":           strings.Replace(table(nil), "policy accept", "policy drop", 1),
		"another type":             strings.Replace(table(nil), "type nat", "type filter", 1),
		"a set of intervals":       strings.Replace(table(nil), "elements =", "flags interval\n\t\telements =", 1),
		"an element leads nowhere": strings.Replace(table(nil), "jump known", "jump nowhere", 1),
		"an end in a block":        strings.TrimSuffix(table(nil), "}\n"),
		"a second chain in a hook": strings.Replace(table(nil), "chain nothing {", "chain nothing {\n type nat hook input priority 0; policy accept;", 1),
		"an element twice":         strings.Replace(table(nil), "10.96.0.2 . udp . 80", "10.96.0.1 . tcp . 80", 1),
	} {
		if _, err := Parse(fwd.IPv4, text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestTraceFailsLikeAKernel(t *testing.T) {
	for name, hooks := range map[string]map[string]string{
		"masquerade before the routing": {"prerouting": "masquerade fully-random"},
		"translation behind it":         {"postrouting": translate},
		"reset of UDP":                  {"prerouting": "reject with tcp reset"},
	} {
		r, err := Parse(fwd.IPv4, table(hooks))
		if err != nil {
			t.Fatal(err)
		}
		p := packet("eth0", "198.18.0.1", "10.96.0.1", 80)
		if name == "reset of UDP" {
			p.Protocol = fwd.UDP
		}
		if _, err := r.Trace(journey.Host{}, p, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	circle := strings.Replace(table(map[string]string{"prerouting": "jump nothing"}), "chain nothing {", "chain nothing {\njump nothing", 1)
	r, err := Parse(fwd.IPv4, circle)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Trace(journey.Host{}, packet("eth0", "198.18.0.1", "10.96.0.1", 80), nil); err == nil {
		t.Error("a circle of chains: no error")
	}
}
