package ipvs

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden holds the plan of every trace to its golden file. It shows what a change of the planner does to the kernel.
func TestGolden(t *testing.T) {
	for _, file := range loadTraces(t) {
		var got bytes.Buffer
		if err := WritePlan(&got, configFor(file.Options), file.Family, file.Table); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", file.Name+"."+file.Family.String()+".golden")
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s differs from the plan (go test -update writes it anew):\n%s", path, &got)
		}
	}
}

func loadTraces(t *testing.T) []trace.File {
	t.Helper()
	files, err := trace.Load("../../dataplane/testdata/trace")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestNodePortAddrs holds that node ports answer at all addresses of the host, but for those that must not or need not.
func TestNodePortAddrs(t *testing.T) {
	addrs := func(list ...string) (as []netip.Addr) {
		for _, a := range list {
			as = append(as, netip.MustParseAddr(a))
		}
		return as
	}
	local := addrs("10.244.1.1", "127.0.0.1", "192.0.2.11", "::1", "2001:db8::11", "fe80::1")
	for name, c := range map[string]struct {
		ranges  []netip.Prefix
		primary bool
		want    []netip.Addr
	}{
		"all":                    {want: addrs("10.244.1.1", "192.0.2.11", "2001:db8::11")},
		"ranges of one family":   {ranges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, want: addrs("192.0.2.11", "2001:db8::11")},
		"primary":                {primary: true, want: addrs("192.0.2.11")},
		"ranges without address": {ranges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("::1/128")}},
	} {
		s := settings{config: Defaults(), local: local, nodeAddrs: addrs("192.0.2.11")}
		s.config.Rules.NodePortAddresses, s.config.Rules.NodePortPrimary = c.ranges, c.primary
		if got := slices.Concat(s.nodePortAddrs(fwd.IPv4), s.nodePortAddrs(fwd.IPv6)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestUpdate holds that a layout does not depend on its history: after Service ports came, changed and went, it is that of
// a fresh one.
func TestUpdate(t *testing.T) {
	files := loadTraces(t)
	s := &settings{config: Defaults(), local: []netip.Addr{trace.Plan(fwd.IPv4).Node}}
	now := &fwd.Table{}
	l := newLayout(s, now)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		next, changed, err := now.Apply(fwd.DiffTables(now, files[rng.IntN(len(files))].Table))
		if err != nil {
			t.Fatal(err)
		}
		l.update(next, changed.Ports)
		now = next
		if fresh := newLayout(s, now); !reflect.DeepEqual(l.wanted, fresh.wanted) {
			t.Fatalf("the layout holds %d objects, a fresh one %d", len(l.wanted), len(fresh.wanted))
		}
	}
}

// TestClaims holds that a cluster IP beats an external IP of the same address, protocol and port, whoever came first.
func TestClaims(t *testing.T) {
	table := parseTable(t, `
service default/a:/TCP/IPv4 cluster-ip=10.96.0.1 external-ips=10.96.0.2 port=80 usable
  common 10.244.1.5:80
service default/b:/TCP/IPv4 cluster-ip=10.96.0.2 port=80 usable
  common 10.244.1.6:80
`)
	l := newLayout(&settings{config: Defaults()}, table)
	at := object{kind: server, protocol: fwd.TCP, addr: netip.MustParseAddrPort("10.96.0.2:80")}
	v, ok := l.value(at)
	if want := netip.MustParseAddrPort("10.244.1.6:80"); !ok || len(v.servers) != 1 || v.servers[0] != want {
		t.Errorf("real servers %v, want %v", v.servers, want)
	}
}

func TestValidate(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"scheduler":      func(c *Config) { c.Scheduler = "fastest" },
		"mark bit":       func(c *Config) { c.MarkBit = 14 },
		"big mark bit":   func(c *Config) { c.MarkBit = 32 },
		"excluded":       func(c *Config) { c.Exclude = []netip.Prefix{netip.MustParsePrefix("10.1.2.3/8")} },
		"timeout":        func(c *Config) { c.UDPTimeout = 1 },
		"masquerade bit": func(c *Config) { c.Rules.MasqueradeBit = -1 },
	} {
		c := Defaults()
		spoil(&c)
		if c.Validate() == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}

func TestOlderThan59(t *testing.T) {
	for release, want := range map[string]bool{"5.4.0-100-generic": true, "5.8": true, "4.19.1": true, "5.9.0": false, "6.1.176": false, "what": false} {
		if olderThan59(release) != want {
			t.Errorf("%s: want %v", release, want)
		}
	}
}

// TestProbe holds that a kernel without IPVS is told by an error of its own, and one without IPv6 gets IPv4 alone.
func TestProbe(t *testing.T) {
	t.Setenv("PATH", "/nowhere") // nothing loads a module
	missing := filepath.Join(t.TempDir(), "missing")
	if err := probe(t.Context(), missing); !errors.Is(err, ErrNoIPVS) {
		t.Errorf("probe: %v, want ErrNoIPVS", err)
	}
	if err := probe(t.Context(), t.TempDir()); err != nil {
		t.Errorf("probe of what is there: %v", err)
	}
	if got := usable(fwd.Families(), missing); !slices.Equal(got, []fwd.Family{fwd.IPv4}) {
		t.Errorf("without IPv6: %v", got)
	}
	if got := usable(fwd.Families(), t.TempDir()); !slices.Equal(got, fwd.Families()) {
		t.Errorf("with IPv6: %v", got)
	}
}
