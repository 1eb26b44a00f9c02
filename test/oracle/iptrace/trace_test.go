package iptrace

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/oracle/journey"
)

// rules wraps nat and filter rules in tables with the built-in chains; lines that begin with ":" declare chains.
func rules(nat, filter string) string {
	return "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n" + nat +
		"COMMIT\n*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n" + filter + "COMMIT\n"
}

func parse(t *testing.T, text string) *Ruleset {
	t.Helper()
	r, err := Parse(fwd.IPv4, text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func packet(in, src, dst string, port uint16) journey.Packet {
	return journey.Packet{In: in, Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: fwd.TCP, DPort: port}
}

func outcomes(results []journey.Result) string {
	lines := make([]string, 0, len(results))
	for _, r := range results {
		lines = append(lines, r.String())
	}
	return strings.Join(lines, "; ")
}

func TestTrace(t *testing.T) {
	host := journey.Host{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	external := packet("eth0", "198.18.0.1", "10.96.0.1", 80)
	for _, c := range []struct {
		name, nat, filter string
		packet            journey.Packet
		want              string
	}{
		{"no rule", "", "", external, "passed"},
		{"translation", "-A PREROUTING -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.1:8080\n", "", external, "passed to 10.0.0.1:8080"},
		{"another port", "-A PREROUTING -p tcp -m tcp --dport 81 -j DNAT --to-destination 10.0.0.1:8080\n", "", external, "passed"},
		{"port in a range", "-A PREROUTING -p tcp -m tcp --dport 64:127 -j DNAT --to-destination 10.0.0.1:8080\n", "", external, "passed to 10.0.0.1:8080"},
		{"options of a module after those of the header", "-A PREROUTING -m tcp -p tcp -d 10.96.0.1 --dport 80 -j DNAT --to-destination 10.0.0.1:1\n", "", external, "passed to 10.0.0.1:1"},
		{"another protocol", "-A PREROUTING -p udp -j DNAT --to-destination 10.0.0.1:8080\n", "", external, "passed"},
		{"a mask with holes", "-A PREROUTING -d 0.0.0.1/0.255.0.15 -j DNAT --to-destination 10.0.0.1:1\n", "", packet("eth0", "198.18.0.1", "10.0.7.17", 80), "passed to 10.0.0.1:1"},
		{"a mask with holes, another address", "-A PREROUTING -d 0.0.0.1/0.255.0.15 -j DNAT --to-destination 10.0.0.1:1\n", "", external, "passed"},
		{"negation", "-A PREROUTING ! -s 198.18.0.0/15 -j DNAT --to-destination 10.0.0.1:1\n", "", external, "passed"},
		{"device by prefix", "-A PREROUTING -i eth+ -j DNAT --to-destination 10.0.0.1:1\n", "", external, "passed to 10.0.0.1:1"},
		{"the host's own packets take OUTPUT", "-A OUTPUT -j DNAT --to-destination 10.0.0.1:1\n", "", packet("", "192.0.2.1", "10.96.0.1", 80), "passed to 10.0.0.1:1"},
		{"return from a chain", ":A - [0:0]\n-A PREROUTING -j A\n-A PREROUTING -j DNAT --to-destination 10.0.0.2:1\n-A A -j RETURN\n-A A -j DNAT --to-destination 10.0.0.1:1\n", "", external, "passed to 10.0.0.2:1"},
		{
			"a goto comes back to where the jump was", ":A - [0:0]\n:B - [0:0]\n-A PREROUTING -j A\n-A PREROUTING -j DNAT --to-destination 10.0.0.2:1\n" +
				"-A A -g B\n-A A -j DNAT --to-destination 10.0.0.1:1\n-A B -j RETURN\n", "", external, "passed to 10.0.0.2:1",
		},
		{
			"mark and masquerade", "-A PREROUTING -j MARK --or-mark 0x4000\n-A PREROUTING -j DNAT --to-destination 10.0.0.1:1\n" +
				"-A POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A POSTROUTING -j MARK --xor-mark 0x4000\n-A POSTROUTING -j MASQUERADE --random-fully\n",
			"-A FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT\n", external, "accepted to 10.0.0.1:1, masqueraded",
		},
		{"a mark that stays", "-A PREROUTING -j MARK --set-xmark 0x10/0x30\n", "", external, "passed, mark 0x10"},
		{"no source in POSTROUTING of what the host takes in", "-A POSTROUTING -j MASQUERADE\n", "", packet("eth0", "198.18.0.1", "192.0.2.1", 80), "passed"},
		{"filter sees the translated address", "-A PREROUTING -j DNAT --to-destination 10.0.0.1:1\n", "-A FORWARD -d 10.96.0.1 -j DROP\n", external, "passed to 10.0.0.1:1"},
		{"filter after nat in OUTPUT", "-A OUTPUT -j DNAT --to-destination 10.0.0.1:1\n", "-A OUTPUT -d 10.0.0.1 -j DROP\n", packet("", "192.0.2.1", "10.96.0.1", 80), "dropped"},
		{"reject", "", "-A FORWARD -m conntrack --ctstate NEW -j REJECT --reject-with icmp-port-unreachable\n", external, "rejected"},
		{"policy", "", ":FORWARD DROP [0:0]\n", external, "dropped"},
		{"what the host sends to itself meets INPUT", "", "-A INPUT -i lo -j DROP\n", packet("", "192.0.2.1", "192.0.2.1", 80), "dropped"},
		{"local addresses", "-A PREROUTING -m addrtype --dst-type LOCAL -j DNAT --to-destination 10.0.0.1:1\n", "", packet("eth0", "198.18.0.1", "192.0.2.1", 80), "passed to 10.0.0.1:1"},
		{"state DNAT", "-A PREROUTING -j DNAT --to-destination 10.0.0.1:1\n", "-A FORWARD -m conntrack ! --ctstate DNAT -j DROP\n", external, "passed to 10.0.0.1:1"},
		{
			"source is destination", "-A PREROUTING -j DNAT --to-destination 198.18.0.1:1\n-A POSTROUTING -m bpf --bytecode \"6,32 0 0 12,7 0 0 0,32 0 0 16,29 0 1 0,6 0 0 65535,6 0 0 0\" -j MASQUERADE\n",
			"", external, "passed to 198.18.0.1:1, masqueraded",
		},
		{
			"source is not destination", "-A PREROUTING -j DNAT --to-destination 198.18.0.2:1\n-A POSTROUTING -m bpf --bytecode \"6,32 0 0 12,7 0 0 0,32 0 0 16,29 0 1 0,6 0 0 65535,6 0 0 0\" -j MASQUERADE\n",
			"", external, "passed to 198.18.0.2:1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			results, err := parse(t, rules(c.nat, c.filter)).Trace(host, c.packet, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := outcomes(results); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestTraceTakesEveryChance(t *testing.T) {
	r := parse(t, rules("-A PREROUTING -m statistic --mode random --probability 0.25 -j DNAT --to-destination 10.0.0.1:1\n"+
		"-A PREROUTING -m statistic --mode random --probability 0.5 -j DNAT --to-destination 10.0.0.2:1\n"+
		"-A PREROUTING -j DNAT --to-destination 10.0.0.3:1\n", ""))
	results, err := r.Trace(journey.Host{}, packet("eth0", "198.18.0.1", "10.96.0.1", 80), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"10.0.0.1:1": 0.25, "10.0.0.2:1": 0.375, "10.0.0.3:1": 0.375}
	for _, r := range results {
		if math.Abs(want[r.To.String()]-r.Probability) > 1e-9 {
			t.Errorf("%v: probability %v, want %v", r.To, r.Probability, want[r.To.String()])
		}
	}
	if len(results) != len(want) {
		t.Errorf("%d results, want %d", len(results), len(want))
	}
}

func TestTraceRemembers(t *testing.T) {
	r := parse(t, rules("-A PREROUTING -m recent --update --seconds 60 --reap --name A --mask 255.255.255.255 --rsource -j DNAT --to-destination 10.0.0.1:1\n"+
		"-A PREROUTING -m statistic --mode random --probability 0.5 -m recent --set --name A --rsource -j DNAT --to-destination 10.0.0.1:1\n"+
		"-A PREROUTING -m recent --name B --set -j DNAT --to-destination 10.0.0.2:1\n", ""))
	from := packet("eth0", "198.18.0.1", "10.96.0.1", 80)
	results, err := r.Trace(journey.Host{}, from, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 || !slices.Equal(results[0].Remembered, []string{"A"}) || !slices.Equal(results[1].Remembered, []string{"B"}) {
		t.Fatalf("a new client: %+v, want to be remembered in A or in B", results)
	}
	for age, want := range map[uint32]int{60: 1, 61: 2} {
		results, err := r.Trace(journey.Host{}, from, journey.Memory{"A": age})
		if err != nil {
			t.Fatal(err)
		}
		if len(results) != want {
			t.Errorf("a client of %d s ago: %d outcomes, want %d", age, len(results), want)
		}
	}
}

func TestTracePassesNatWithKnownConnections(t *testing.T) {
	r := parse(t, rules("-A PREROUTING -j DNAT --to-destination 10.0.0.1:1\n", "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD -m conntrack --ctstate INVALID -j DROP\n"))
	for state, want := range map[journey.State]string{journey.Established: "accepted", journey.Invalid: "dropped", journey.New: "passed to 10.0.0.1:1"} {
		p := packet("eth0", "198.18.0.1", "10.96.0.1", 80)
		p.State = state
		results, err := r.Trace(journey.Host{}, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := outcomes(results); got != want {
			t.Errorf("%s: got %s, want %s", state, got, want)
		}
	}
}

func TestTraceFailsLikeAKernel(t *testing.T) {
	for name, text := range map[string]string{
		"circle":               rules(":A - [0:0]\n-A PREROUTING -j A\n-A A -j A\n", ""),
		"DNAT in filter":       rules("", "-A FORWARD -j DNAT --to-destination 10.0.0.1:1\n"),
		"MASQUERADE in filter": rules("", "-A FORWARD -j MASQUERADE\n"),
	} {
		if _, err := parse(t, text).Trace(journey.Host{}, packet("eth0", "198.18.0.1", "10.96.0.1", 80), nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestParseRefuses holds the promise that nothing is passed over.
func TestParseRefuses(t *testing.T) {
	for _, line := range []string{
		"-A PREROUTING -j NOWHERE",
		"-A NOWHERE -j ACCEPT",
		"-A PREROUTING -m u32 --u32 0 -j ACCEPT",
		"-A PREROUTING -o eth0 -j ACCEPT",
		"-A PREROUTING -j DNAT --to-destination 10.0.0.1-10.0.0.2:80",
		"-A PREROUTING -j DNAT --to-destination 10.0.0.1:80 --persistent",
		"-A PREROUTING -j DNAT --to-destination [fd00::1]:80",
		"-A PREROUTING -s fd00::/64 -j ACCEPT",
		"-A PREROUTING -s 10.0.0.0/33 -j ACCEPT",
		"-A PREROUTING -m statistic --mode nth --every 2 -j ACCEPT",
		"-A PREROUTING -m statistic --mode random --probability 1.5 -j ACCEPT",
		"-A PREROUTING -m conntrack --ctstate SNAT -j ACCEPT",
		"-A PREROUTING -m addrtype --dst-type BROADCAST -j ACCEPT",
		"-A PREROUTING -m recent --name A --rcheck -j ACCEPT",
		"-A PREROUTING -m recent --name A --set --rdest -j ACCEPT",
		"-A PREROUTING -m recent --name A --set --mask 255.255.255.0 -j ACCEPT",
		"-A PREROUTING -m bpf --bytecode \"1,48 0 0 9\" -j ACCEPT",
		"-A PREROUTING -m bpf --bytecode \"2,21 0 1 6,6 0 0 0\" -j ACCEPT",
		"-A PREROUTING -j MARK --and-mark 0x1",
		"-A PREROUTING -j MASQUERADE --to-ports 1-2",
		"-A PREROUTING ! -j ACCEPT",
		"-A PREROUTING -m comment --comment \"open",
		"-D PREROUTING 1",
		"nonsense",
	} {
		if _, err := Parse(fwd.IPv4, rules(line+"\n", "")); err == nil {
			t.Errorf("%s: no error", line)
		}
	}
	if _, err := Parse(fwd.IPv4, "-A PREROUTING -j ACCEPT\n"); err == nil {
		t.Error("a rule outside of a table: no error")
	}
}

// TestParsePieces takes what a bulk load sends: a table in pieces, a chain written anew, one taken away.
func TestParsePieces(t *testing.T) {
	r := parse(t, rules(":A - [0:0]\n:B - [0:0]\n-A A -j DNAT --to-destination 10.0.0.1:1\n", "")+
		"*nat\n:A - [0:0]\n-A A -m comment --comment \"a \\\"b\\\" -j c\" -j DNAT --to-destination 10.0.0.2:1\n-I PREROUTING -j A\n-X B\nCOMMIT\n")
	results, err := r.Trace(journey.Host{}, packet("eth0", "198.18.0.1", "10.96.0.1", 80), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := outcomes(results); got != "passed to 10.0.0.2:1" {
		t.Errorf("got %s, want the chain as written last", got)
	}
}

func TestTraceIPv6(t *testing.T) {
	r, err := Parse(fwd.IPv6, rules("-A PREROUTING -d ::5/::f -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00::1]:8080\n"+
		"-A POSTROUTING -m bpf --bytecode \"18,32 0 0 8,7 0 0 0,32 0 0 24,29 0 13 0,32 0 0 12,7 0 0 0,32 0 0 28,29 0 9 0,32 0 0 16,7 0 0 0,32 0 0 32,29 0 5 0,32 0 0 20,7 0 0 0,32 0 0 36,29 0 1 0,6 0 0 65535,6 0 0 0\" -j MASQUERADE\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	for src, want := range map[string]string{"fd00::2": "passed to [fd00::1]:8080", "fd00::1": "passed to [fd00::1]:8080, masqueraded"} {
		results, err := r.Trace(journey.Host{}, packet("eth0", src, "fd00:96::15", 80), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := outcomes(results); got != want {
			t.Errorf("from %s: got %s, want %s", src, got, want)
		}
	}
}
