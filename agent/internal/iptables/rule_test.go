package iptables

import (
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestParseRendered holds that all that is generated parses back to the same, whatever the names of Services are.
func TestParseRendered(t *testing.T) {
	for seed := range uint64(20000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		f := fwd.Families()[rng.IntN(2)]
		want := randomRule(rng, f)
		text := string(appendRule(nil, f, want))
		if strings.ContainsAny(text, "\n\r\x00`$;\\") {
			t.Fatalf("unsafe text %q", text)
		}
		got, err := parseRule(f, splitWords(nil, text))
		if err != nil || got != want {
			t.Fatalf("seed %d: %q parses to\n%+v, want\n%+v (error %v)", seed, text, got, want, err)
		}
	}
}

func randomRule(rng *rand.Rand, f fwd.Family) Rule {
	some := func() bool { return rng.IntN(3) == 0 }
	addr := func() netip.Addr {
		b := make([]byte, f.Bits()/8)
		for i := range b {
			b[i] = byte(rng.IntN(256))
		}
		a, _ := netip.AddrFromSlice(b)
		return a
	}
	r := Rule{SrcLocal: some(), DstLocal: some(), SameAddr: some(), Verdict: Verdict(1 + rng.IntN(int(Masquerade)))}
	if some() {
		r.Src = toPrefix(netip.PrefixFrom(addr(), rng.IntN(f.Bits()+1)))
		r.Src.Not = some()
	}
	if some() {
		n := rng.IntN(32)
		r.Dst = AddrMatch{Addr: lowBits(f, rng.Uint64()&(1<<n-1)), Mask: lowBits(f, 1<<n-1)}
	}
	if some() {
		r.In = "veth-a.1+"
	}
	if some() {
		r.Protocol = fwd.Protocols()[rng.IntN(3)]
		r.DPort = PortRange{uint16(rng.IntN(100) + 1), uint16(rng.IntN(100) + 101)}
	}
	if some() {
		r.State = StateMatch{States: ConnState(1 + rng.IntN(31)), Not: some()}
	}
	if some() {
		r.Mark = MarkMatch{MarkValue{rng.Uint32(), rng.Uint32() | 1}, some()}
	}
	if some() {
		r.Probability = 1 + rng.Uint32N(certain-1)
	}
	if some() {
		r.Recent = RecentMatch{Name: "FL-1-2", Seconds: rng.Uint32N(3)}
	}
	if some() {
		r.Comment = comment(randomText(rng))
	}
	switch r.Verdict {
	case Jump, Goto:
		r.Chain = "FL-SVC-0123456789abcdef"
	case DNAT:
		r.To = netip.AddrPortFrom(addr().Unmap(), uint16(rng.IntN(65536)))
	case MarkPacket:
		r.SetMark = MarkValue{rng.Uint32(), rng.Uint32()}
	case Masquerade:
		r.RandomFully = some()
	case None, Accept, Drop, Reject, Return:
	}
	return r
}

func randomText(rng *rand.Rand) string {
	b := make([]byte, rng.IntN(300))
	for i := range b {
		b[i] = byte(rng.IntN(256))
	}
	return string(b)
}

func TestComment(t *testing.T) {
	safe := regexp.MustCompile(`^[A-Za-z0-9._:/-]*$`)
	for seed := range uint64(1000) {
		if c := comment(randomText(rand.New(rand.NewPCG(seed, 0)))); !safe.MatchString(c) || len(c) > 255 {
			t.Fatalf("comment %q is not safe", c)
		}
	}
	if c := comment("kube-system/dns_1.x:tcp"); c != "kube-system/dns_1.x:tcp" {
		t.Errorf("comment changed a good name to %q", c)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"-s 10.0.0.0/33 -j ACCEPT", "-s fd00::1 -j ACCEPT", "-p icmp -j ACCEPT", "-m tcp --sport 1", "! -p tcp", "-j", "-m limit --limit 1/s",
		"-m statistic --mode nth --every 2", "-m conntrack --ctstate NEWER", "--dport x", "-m recent --rttl --rsource", "-j ACCEPT !",
		"-j DNAT --to-destination 10.0.0.1", "-m bpf --bytecode \"1,6 0 0 0\"", "-m mark --mark x",
	} {
		if r, err := parseRule(fwd.IPv4, splitWords(nil, text)); err == nil {
			t.Errorf("%q parses to %+v", text, r)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	for want, c := range map[string]Config{
		"flavor":              {Flavor: "bpf"},
		"masquerade bit":      {MasqueradeBit: 32},
		"cluster CIDR":        {DetectLocal: dataplane.LocalClusterCIDR},
		"interface":           {DetectLocal: dataplane.LocalBridge, Interface: "a b"},
		"detect-local mode":   {DetectLocal: "guess"},
		"prefix 10.0.0.1/8":   {ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}},
		"node port addresses": {NodePortPrimary: true, NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %s", err, want)
		}
	}
}
