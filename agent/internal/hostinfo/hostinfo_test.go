package hostinfo

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/fairlead/fairlead/proto/fwd"
)

// TestAddresses reads a real kernel's addresses and hears of changes.
func TestAddresses(t *testing.T) {
	newNamespace(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	changed, err := WatchAddresses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		addr, err := netlink.ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		want := netip.MustParsePrefix(s).Addr()
		if err := netlink.AddrAdd(lo, addr); err != nil {
			t.Fatal(err)
		}
		waitFor(t, changed, func() bool { return slices.Contains(addresses(t), want) })
		if err := netlink.AddrDel(lo, addr); err != nil {
			t.Fatal(err)
		}
		waitFor(t, changed, func() bool { return !slices.Contains(addresses(t), want) })
	}
	got := addresses(t)
	if !slices.IsSortedFunc(got, netip.Addr.Compare) || !slices.Contains(got, netip.MustParseAddr("127.0.0.1")) || !slices.Contains(got, netip.IPv6Loopback()) {
		t.Errorf("addresses %v: want them sorted, both loopbacks among them", got)
	}
}

// waitFor waits until ok, and looks again only after a signal.
func waitFor(t *testing.T, changed <-chan struct{}, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for heard := false; !heard || !ok(); {
		select {
		case <-changed:
			heard = true
		case <-deadline:
			t.Fatal("no change was heard of")
		}
	}
}

func addresses(t *testing.T) []netip.Addr {
	t.Helper()
	got, err := Addresses()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// newNamespace moves the test to a network namespace of its own; its thread ends with it.
func newNamespace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatalf("new network namespace (root is needed): %v", err)
	}
	t.Cleanup(func() { _ = ns.Close() })
}

func TestNodePortAddresses(t *testing.T) {
	local := addrs("127.0.0.1", "192.0.2.1", "198.51.100.1", "::1", "2001:db8::1", "2001:db8::2")
	node := addrs("2001:db8::2", "192.0.2.1", "198.51.100.1")
	for _, c := range []struct {
		flag string
		want []netip.Addr
		all  [2]bool
	}{
		{"", local, [2]bool{true, true}},
		{"192.0.2.0/24", addrs("192.0.2.1", "::1", "2001:db8::1", "2001:db8::2"), [2]bool{false, true}},
		{"192.0.2.77/24,::1/128", addrs("192.0.2.1", "::1"), [2]bool{}},
		{"192.0.2.0/24,0.0.0.0/0,2001:db8::1/128", addrs("127.0.0.1", "192.0.2.1", "198.51.100.1", "2001:db8::1"), [2]bool{true, false}},
		{"primary", addrs("192.0.2.1", "2001:db8::2"), [2]bool{}},
	} {
		n, err := ParseNodePortAddresses(strings.FieldsFunc(c.flag, func(r rune) bool { return r == ',' }))
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Select(local, node); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, want %v", c.flag, got, c.want)
		}
		if got := [2]bool{n.All(fwd.IPv4), n.All(fwd.IPv6)}; got != c.all {
			t.Errorf("%q: All: got %v, want %v", c.flag, got, c.all)
		}
	}
	for _, bad := range [][]string{{"192.0.2.1"}, {"primary", "192.0.2.0/24"}, {"any"}, {""}} {
		if _, err := ParseNodePortAddresses(bad); err == nil || !strings.HasPrefix(err.Error(), "nodeport addresses: ") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// TestEnsure: what is right stays untouched, what is missing and optional is no error, and one failure hides no other.
func TestEnsure(t *testing.T) {
	sys := procSys(t, map[string]string{"net/a": "0\n", "net/right": "1\n", "net/z": "0\n"})
	changed, err := Ensure(sys, []Setting{
		{Name: "net/missing", Value: "1"},
		{Name: "net/a", Value: "1"},
		{Name: "net/gone", Value: "1", Optional: true},
		{Name: "net/right", Value: "1"},
		{Name: "net/z", Value: "2"},
	})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "net/missing") || strings.Contains(err.Error(), "net/gone") {
		t.Errorf("error %v: want one for net/missing alone", err)
	}
	if want := []Setting{{Name: "net/a", Value: "1", Former: "0"}, {Name: "net/z", Value: "2", Former: "0"}}; !reflect.DeepEqual(changed, want) {
		t.Errorf("changed %v, want %v", changed, want)
	}
	if got, err := sys.Get("net/z"); err != nil || got != "2" {
		t.Errorf("net/z: %q, %v", got, err)
	}
	if again, err := Ensure(sys, []Setting{{Name: "net/a", Value: "1"}}); err != nil || len(again) != 0 {
		t.Errorf("again: %v, %v", again, err)
	}
	if _, err := os.Stat(filepath.Join(sys.Root, "net/missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a setting that the kernel lacks was created")
	}
}

// TestForwarding sets the real thing, in a namespace of its own.
func TestForwarding(t *testing.T) {
	newNamespace(t)
	sys := ProcSys{Root: "/proc/sys"}
	if _, err := Ensure(sys, Forwarding()); err != nil {
		t.Fatal(err)
	}
	for _, s := range Forwarding() {
		if got, err := sys.Get(s.Name); err != nil || got != s.Value {
			t.Errorf("%s: %q, %v", s.Name, got, err)
		}
	}
}

func TestConntrackMax(t *testing.T) {
	for _, c := range []struct{ perCore, floor, cores, want int }{
		{32768, 131072, 1, 131072},
		{32768, 131072, 8, 262144},
		{32768, 131072, 64, 1 << 20},
		{0, 131072, 8, 0},
		{1, 0, 3, 3},
	} {
		if got := (Conntrack{MaxPerCore: c.perCore, Min: c.floor}).Max(c.cores); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

func TestConntrackApply(t *testing.T) {
	files := map[string]string{
		conntrackMax: "65536\n", conntrackBuckets: "16384\n", beLiberal: "0\n",
		conntrackDir + "nf_conntrack_tcp_timeout_established": "432000\n",
		conntrackDir + "nf_conntrack_tcp_timeout_close_wait":  "3600\n",
		conntrackDir + "nf_conntrack_udp_timeout":             "30\n",
	}
	sys := procSys(t, files)
	want := DefaultConntrack()
	want.UDP, want.UDPStream, want.TCPBeLiberal = 90*time.Second, time.Minute, true
	changed, err := want.Apply(sys, 8)
	if err == nil || !strings.Contains(err.Error(), "nf_conntrack_udp_timeout_stream") {
		t.Errorf("error %v: want one for the setting that is missing", err)
	}
	var got []string
	for _, s := range changed {
		got = append(got, strings.TrimPrefix(s.Name, conntrackDir)+"="+s.Value)
	}
	wantChanged := []string{
		"nf_conntrack_max=262144", "nf_conntrack_buckets=65536", "nf_conntrack_tcp_timeout_established=86400",
		"nf_conntrack_udp_timeout=90", "nf_conntrack_tcp_be_liberal=1",
	}
	if !slices.Equal(got, wantChanged) {
		t.Errorf("changed %v, want %v", got, wantChanged)
	}
	if liberal, err := TCPBeLiberal(sys); err != nil || !liberal {
		t.Errorf("be liberal: %v, %v", liberal, err)
	}
	if changed, err := (Conntrack{}).Apply(sys, 8); err != nil || len(changed) != 0 {
		t.Errorf("nothing wanted: %v, %v", changed, err)
	}
	if liberal, err := TCPBeLiberal(procSys(t, nil)); err != nil || liberal {
		t.Errorf("be liberal without conntrack: %v, %v", liberal, err)
	}
}

func TestConntrackValidate(t *testing.T) {
	if err := DefaultConntrack().Validate(); err != nil {
		t.Error(err)
	}
	err := Conntrack{MaxPerCore: -1, Min: -1, UDP: -time.Second, TCPCloseWait: time.Millisecond}.Validate()
	for _, flag := range []string{"--conntrack-max-per-core", "--conntrack-min", "--conntrack-udp-timeout:", "--conntrack-tcp-timeout-close-wait"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("error %v: want it to name %s", err, flag)
		}
	}
}

// procSys writes files below a temporary root.
func procSys(t *testing.T, files map[string]string) ProcSys {
	t.Helper()
	root := t.TempDir()
	for name, value := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return ProcSys{Root: root}
}

func TestVersion(t *testing.T) {
	for release, want := range map[string]Version{
		"6.18.44-fc-v595": {6, 18}, "5.15+": {5, 15}, "6.1.0-18-amd64": {6, 1}, "4.19": {4, 19},
	} {
		if got, err := parseVersion(release); err != nil || got != want {
			t.Errorf("%s: %v, %v", release, got, err)
		}
	}
	for _, bad := range []string{"", "6", "six.one", "6.x"} {
		if v, err := parseVersion(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, v)
		}
	}
	if !(Version{5, 9}).AtLeast(5, 9) || !(Version{6, 0}).AtLeast(5, 9) || (Version{5, 8}).AtLeast(5, 9) || (Version{4, 19}).AtLeast(5, 9) {
		t.Error("AtLeast is wrong")
	}
	running, err := Kernel()
	if err != nil || !running.AtLeast(3, 0) {
		t.Errorf("running kernel: %v, %v", running, err)
	}
}

func TestCores(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-3,8,10-11": 7} {
		if got, err := countList(list); err != nil || got != want {
			t.Errorf("%s: %d, %v", list, got, err)
		}
	}
	if _, err := countList("0-x"); err == nil {
		t.Error("a list that is none has no error")
	}
	if Cores() < 1 {
		t.Error("no cores")
	}
}
