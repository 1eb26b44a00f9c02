package nftables

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/lab/uml"
	"github.com/fairlead/fairlead/proto/fwd"
)

func parseTable(t *testing.T, text string) *fwd.Table {
	t.Helper()
	table, err := fwd.ParseText(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// to is the step from one table to another.
func to(t *testing.T, before, now *fwd.Table) step {
	t.Helper()
	next, touched, err := before.Apply(fwd.DiffTables(before, now))
	if err != nil {
		t.Fatal(err)
	}
	return step{before, next, dataplane.Delta{Changed: touched}}
}

const oneService = `service default/web:/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable
  common 10.244.1.5:8080
`

// TestWatch holds that others' changes of our tables are told, and neither ours nor changes of other tables.
func TestWatch(t *testing.T) {
	n := newNode(t)
	d := backendIn(t, n.Namespace, Defaults())
	var changes <-chan struct{}
	if err := n.Do(func() error { changes = d.Watch(t.Context()); return nil }); err != nil {
		t.Fatal(err)
	}
	table := parseTable(t, oneService)
	synced(t, d, everything(table))
	synced(t, d, to(t, table, parseTable(t, oneService+"  common 10.244.1.6:8080\n")))
	if err := n.nft(foreignRules)(); err != nil {
		t.Fatal(err)
	}
	for _, edit := range []string{"flush chain ip fairlead services", "add element ip fairlead cluster-ips { 10.1.1.1 }", "flush ruleset"} {
		select {
		case <-changes:
			t.Fatalf("before %q: told of a change that concerns nobody", edit)
		default:
		}
		if err := n.nft(edit)(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		select {
		case <-changes:
			t.Logf("%s: told after %v", edit, time.Since(began))
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: not told", edit)
		}
		if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) == 0 {
			t.Errorf("%s: audit found nothing, error %v", edit, err)
		}
	}
}

// TestAuditIsCheap holds that an audit does not read the kernel again where nobody else has written.
func TestAuditIsCheap(t *testing.T) {
	n := newNode(t)
	d := backendIn(t, n.Namespace, Defaults())
	table := parseTable(t, oneService)
	synced(t, d, everything(table))
	synced(t, d, to(t, table, parseTable(t, oneService+"  common 10.244.1.6:8080\n")))
	if !d.generation.unchanged() {
		t.Error("after own changes, an audit reads everything")
	}
	if err := n.nft(foreignRules)(); err != nil {
		t.Fatal(err)
	}
	if d.generation.unchanged() {
		t.Error("after others' changes, an audit reads nothing")
	}
	if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) > 0 {
		t.Errorf("audit: %v, error %v", ds, err)
	}
	if !d.generation.unchanged() {
		t.Error("after an audit without findings, the next one reads everything")
	}
}

// refusing is a kernel that does not take transactions with a text in them.
type refusing struct {
	kernel
	text string
}

func (k refusing) transact(b *batch) error {
	if bytes.Contains(b.buf, []byte(k.text)) {
		return unix.EOPNOTSUPP
	}
	return k.kernel.transact(b)
}

// TestProbe holds that a kernel without a feature is refused by its name, and that probing leaves nothing behind.
func TestProbe(t *testing.T) {
	n := newNode(t)
	var s *socket
	if err := n.Do(func() (err error) { s, err = openSocket(); return err }); err != nil {
		t.Fatal(err)
	}
	for text, name := range map[string]string{"masq": "nft_masq", "numgen": "nft_numgen", "fib\x00": "nft_fib", "reject": "nft_reject", "dynset": "nft_dynset"} {
		_, err := newBackend(t.Context(), Defaults(), refusing{s, text})
		var lacks *UnsupportedError
		if !errors.As(err, &lacks) || len(lacks.Missing) != 1 || !strings.Contains(lacks.Missing[0], name) {
			t.Errorf("without %s: %v", text, err)
		}
		if !errors.Is(err, unix.EOPNOTSUPP) {
			t.Errorf("without %s: the kernel's answer is lost: %v", text, err)
		}
	}
	if out := n.dump(t); out != "\n\n" {
		t.Errorf("probing left:\n%q", out)
	}
}

// TestPoorKernel boots a kernel of Linux 6.1 that was built without nf_tables for IP: it is refused, by name.
func TestPoorKernel(t *testing.T) {
	if !uml.Enter(t) {
		return
	}
	_, err := New(t.Context(), Defaults())
	var lacks *UnsupportedError
	if !errors.As(err, &lacks) || !slices.Equal(lacks.Missing, []string{"nf_tables for this family"}) {
		t.Errorf("got %v", err)
	}
	t.Log(err)
}

// TestProbeCleansUp holds that a probe which died is no obstacle, and is cleaned up.
func TestProbeCleansUp(t *testing.T) {
	n := newNode(t)
	empty := n.dump(t)
	if err := n.nft("add table ip fairlead-probe { flags dormant; }; add chain ip fairlead-probe pick")(); err != nil {
		t.Fatal(err)
	}
	d := backendIn(t, n.Namespace, Defaults())
	if err := n.nft("add table ip6 fairlead-probe { flags dormant; }")(); err != nil {
		t.Fatal(err)
	}
	if err := d.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	if out := n.dump(t); out != empty {
		t.Errorf("left:\n%s", out)
	}
}

// TestMovesFew holds that a change of one endpoint writes few elements however long the list is.
func TestMovesFew(t *testing.T) {
	table := scaled(t, 2, 50)
	st := newState(newSettings(Defaults(), fwd.IPv4, table))
	st.load(table, func(pool, frontend) []netip.AddrPort { return nil })
	id := scaledPort(1).ID()
	gone := fwd.EncodeBackend(id, fwd.Backend{Addr: backendAddr(50)})
	next, touched := changed(t, table, []string{gone.Key}, nil)
	e := st.move(next, touched.Ports, nil)
	if len(e.replace) != 1 || len(e.add) != 0 || len(e.remove) != 2 { // the last one moves; its slot and the hairpin go
		t.Errorf("one endpoint less of 50: add %d, replace %d, remove %d", len(e.add), len(e.replace), len(e.remove))
	}
	back, touched := changed(t, next, nil, []fwd.Row{gone})
	e = st.move(back, touched.Ports, nil)
	if len(e.replace) != 0 || len(e.add) != 2 || len(e.remove) != 0 {
		t.Errorf("one endpoint more: add %d, replace %d, remove %d", len(e.add), len(e.replace), len(e.remove))
	}
}

// TestLongList holds that the kernel takes lists of any length that has slots, and that of a longer one the rest is left out
// and said so: at a start and when it grows so long, and no longer when it is shorter again.
func TestLongList(t *testing.T) {
	n := newNode(t)
	d := backendIn(t, n.Namespace, Defaults())
	whole := scaled(t, 1, maxSlots)
	if r := synced(t, d, everything(whole)); len(r.Notices) > 0 {
		t.Errorf("all endpoints fit: %v", r.Notices)
	}
	if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) > 0 {
		t.Errorf("audit: %v, error %v", ds, err)
	}
	var more []fwd.Row
	for i := range 3 {
		more = append(more, fwd.EncodeBackend(scaledPort(0).ID(), fwd.Backend{Addr: backendAddr(maxSlots + i)}))
	}
	longer, touched := changed(t, whole, nil, more)
	told := synced(t, d, step{whole, longer, dataplane.Delta{Changed: touched}}).Notices
	if len(told) != 1 || told[0].Name != "service-0" || told[0].Reason != reasonTooManyEndpoints || !strings.Contains(told[0].Message, "3 endpoints") {
		t.Errorf("three endpoints too many: %+v", told)
	}
	if again := synced(t, d, everything(longer)).Notices; !slices.Equal(again, told) {
		t.Errorf("at a start: %+v, want %+v", again, told)
	}
	if ds, err := dataplane.Compare(t.Context(), d); err != nil || len(ds) > 0 {
		t.Errorf("audit: %v, error %v", ds, err)
	}
	if r := synced(t, d, to(t, longer, whole)); len(r.Notices) > 0 {
		t.Errorf("all endpoints fit again: %v", r.Notices)
	}
}

// TestFill holds that slots have no gaps, and that who stays keeps its own unless it closes a gap.
func TestFill(t *testing.T) {
	list := func(names string) []netip.AddrPort {
		var l []netip.AddrPort
		for _, n := range []byte(names) {
			if n == '-' {
				l = append(l, netip.AddrPort{})
				continue
			}
			l = append(l, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 80))
		}
		return l
	}
	for _, c := range []struct{ before, want, slots string }{
		{"", "abc", "abc"},
		{"abc", "abc", "abc"},
		{"abc", "abcd", "abcd"},
		{"abc", "bc", "cb"},
		{"abc", "ab", "ab"},
		{"abc", "", ""},
		{"abc", "xbc", "xbc"},
		{"abc", "bx", "xb"},
		{"abcde", "be", "eb"},
		{"abcde", "a", "a"},
		{"abcde", "e", "e"},
		{"cab", "abc", "cab"},
		{"a-c", "abc", "abc"},
		{"aa", "ab", "ab"},
		{"abc", "xyz", "xyz"},
	} {
		if got := fill(list(c.before), list(c.want)); !slices.Equal(got, list(c.slots)) {
			t.Errorf("fill(%q, %q): got %v, want %q", c.before, c.want, got, c.slots)
		}
	}
}

// TestTwoClaims holds that of two Service ports at one frontend one has it, cluster IPs before others, and that the other
// gets it when the first goes.
func TestTwoClaims(t *testing.T) {
	const first = `service a/first:/TCP/IPv4 cluster-ip=10.96.0.10 port=80 usable
  common 10.244.1.5:8080
`
	const second = `service b/second:/TCP/IPv4 cluster-ip=10.96.0.11 external-ips=10.96.0.10 port=80 usable
  common 10.244.1.6:8080
`
	n := newNode(t)
	d := backendIn(t, n.Namespace, Defaults())
	table := parseTable(t, second)
	synced(t, d, everything(table))
	for _, text := range []string{first + second, first, first + second, second} {
		s := to(t, table, parseTable(t, text))
		synced(t, d, s)
		table = s.now
		fresh := newNode(t)
		synced(t, backendIn(t, fresh.Namespace, Defaults()), everything(table))
		if got, want := n.dump(t), fresh.dump(t); got != want {
			t.Fatalf("after a step to:\n%s\ngot:\n%s\nwant:\n%s", text, got, want)
		}
	}
}

// TestListsCleanly is about nft 1.0.6, which aborts where a lookup's result is looked up: every kind of rule is there, and
// clients that are remembered.
func TestListsCleanly(t *testing.T) {
	n := newNode(t)
	c := Defaults()
	c.DetectLocal, c.Interface, c.NodePortAddresses = dataplane.LocalPrefix, "veth", []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2001:db8::/33")}
	d := backendIn(t, n.Namespace, c)
	var all strings.Builder
	for _, file := range loadTraces(t) {
		synced(t, d, everything(file.Table))
		listed := n.dump(t)
		all.WriteString(listed)
		client := map[fwd.Family]string{fwd.IPv4: "ip fairlead %s { 198.51.100.7 timeout 60s : 10.244.1.5 . 8080 }", fwd.IPv6: "ip6 fairlead %s { fd00::7 timeout 60s : fd00::5 . 8080 }"}[file.Family]
		if clients := regexp.MustCompile(`map (clients-\w+)`).FindStringSubmatch(listed); clients != nil {
			if err := n.nft("add element " + fmt.Sprintf(client, clients[1]))(); err != nil {
				t.Fatal(err)
			}
			all.WriteString(n.dump(t))
		}
	}
	for _, text := range []string{
		"update @clients-", "@source-ranges-24 return", "vmap @node-port-learn", "goto pick-4", "fib daddr type local", "daddr 10.96.0.0/16 drop",
		"198.51.100.7 timeout", "fd00::7 timeout",
	} {
		if !strings.Contains(all.String(), text) {
			t.Errorf("%q was not listed", text)
		}
	}
}
