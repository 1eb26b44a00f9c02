package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/dataplane/lab"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

func flavors(t *testing.T, run func(t *testing.T, flavor Flavor)) {
	for _, flavor := range []Flavor{FlavorNFT, FlavorLegacy} {
		t.Run(string(flavor), func(t *testing.T) {
			t.Parallel()
			run(t, flavor)
		})
	}
}

func parseTable(t *testing.T, text string) *fwd.Table {
	t.Helper()
	table, err := fwd.ParseText(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// kernelConfig tells Pods by the addresses of package trace.
func kernelConfig(flavor Flavor) Config {
	c := Defaults()
	c.Flavor, c.DetectLocal, c.ClusterCIDRs = flavor, dataplane.LocalClusterCIDR, []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	return c
}

func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func serve(t *testing.T, l *lab.Lab, table *fwd.Table) {
	t.Helper()
	s, err := l.Serve(table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
}

func client(kind trace.Kind) trace.Client {
	return trace.Client{Kind: kind, Addr: trace.Plan(fwd.IPv4).Clients[kind]}
}

func ask(t *testing.T, l *lab.Lab, c trace.Client, to string) lab.Answer {
	t.Helper()
	a, err := l.Ask(c, fwd.TCP, netip.MustParseAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// run runs a command on the node, with the text as its input.
func run(t *testing.T, l *lab.Lab, text string, argv ...string) {
	t.Helper()
	err := l.Node.Do(func() error {
		return execRunner{}.run(context.Background(), call{program: argv[0], args: argv[1:], stdin: []byte(text)})
	})
	if err != nil {
		t.Fatal(err)
	}
}

const webTable = `
node-facts pod-cidrs=10.244.1.0/24 addresses=192.0.2.11
service default/web:/TCP/IPv4 cluster-ip=10.96.0.10 load-balancer-ips=203.0.113.10 port=80 node-port=30080 usable
  common 10.244.1.5:8080
  common 10.244.2.5:8080
service default/gone:/TCP/IPv4 cluster-ip=10.96.0.11 port=80
`

// TestNextToKubeProxy holds that stale rules of a kube-proxy win nowhere, neither for Services with nor without
// endpoints, nor for ports that a Service no longer has; and that its other rules are left alone.
func TestNextToKubeProxy(t *testing.T) {
	flavors(t, func(t *testing.T, flavor Flavor) {
		l, table := newLab(t), parseTable(t, webTable)
		serve(t, l, table)
		stale := parseTable(t, `
service default/stale:/TCP/IPv4 cluster-ip=10.96.0.99 port=80 usable
  common 10.244.1.6:9090
`)
		serve(t, l, stale)
		run(t, l, `*nat
:KUBE-SERVICES - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.0/16 -p tcp -j DNAT --to-destination 10.244.1.6:9090
COMMIT
`, "iptables-"+string(flavor)+"-restore", "--noflush", "--wait")
		d := backendIn(t, l, kernelConfig(flavor))
		sync(t, d, everything(table))
		for to, endpoints := range map[string]string{
			"10.96.0.10:80": "10.244.1.5:8080 10.244.2.5:8080", // ours
			"10.96.0.10:81": "invalid AddrPort",                // a port that is no longer
			"10.96.0.11:80": "refused",                         // without endpoints
			"10.96.0.99:80": "10.244.1.6:9090",                 // not ours
		} {
			got := ask(t, l, client(trace.Pod), to)
			if !strings.Contains(endpoints, got.Endpoint.String()) && (!got.Refused || endpoints != "refused") {
				t.Errorf("%s: got %+v, want %s", to, got, endpoints)
			}
		}
		if r := sync(t, d, everything(table)); r.Writes != 0 {
			t.Errorf("%d writes for the same table next to kube-proxy, want 0", r.Writes)
		}
		// A kube-proxy that starts anew puts its jumps first.
		run(t, l, "", "iptables-"+string(flavor), "--wait", "-t", "nat", "-I", "PREROUTING", "-j", "KUBE-SERVICES")
		if ds, err := dataplane.Compare(context.Background(), d); err != nil || len(ds) == 0 {
			t.Errorf("audit did not see that kube-proxy comes first, error %v", err)
		}
		sync(t, d, everything(table))
		if got := ask(t, l, client(trace.Pod), "10.96.0.11:80"); !got.Refused {
			t.Errorf("after the repair: got %+v, want refused", got)
		}
	})
}

// TestForwardPolicyDrop holds that masqueraded and hairpin connections pass a host whose policy is to forward nothing.
func TestForwardPolicyDrop(t *testing.T) {
	flavors(t, func(t *testing.T, flavor Flavor) {
		l, table := newLab(t), parseTable(t, webTable+`
service default/self:/TCP/IPv4 cluster-ip=10.96.0.12 port=80 health-check-node-port=30399 usable
  common 10.244.1.5:8081
`)
		serve(t, l, table)
		run(t, l, "", "iptables-"+string(flavor), "--wait", "-P", "FORWARD", "DROP")
		d := backendIn(t, l, kernelConfig(flavor))
		sync(t, d, everything(table))
		for range 4 {
			for _, to := range []string{"192.0.2.11:30080", "203.0.113.10:80", "10.96.0.10:80"} {
				if got := ask(t, l, client(trace.External), to); !got.Endpoint.IsValid() {
					t.Errorf("external to %s: no answer", to)
				}
			}
		}
		// The health-check node port is open whatever the policy for packets to the host.
		serve(t, l, parseTable(t, "service a/health:/TCP/IPv4 cluster-ip=10.96.0.200 port=1\n  common 192.0.2.11:30399\n"))
		run(t, l, "", "iptables-"+string(flavor), "--wait", "-P", "INPUT", "DROP")
		if got := ask(t, l, client(trace.External), "192.0.2.11:30399"); !got.Endpoint.IsValid() {
			t.Error("health-check node port: no answer")
		}
		self := trace.Client{Kind: trace.Pod, Addr: netip.MustParseAddr("10.244.1.5")}
		if got := ask(t, l, self, "10.96.0.12:80"); !got.Endpoint.IsValid() {
			t.Error("hairpin: no answer")
		}
	})
}

// TestAffinity holds what affinity promises beyond one address: it is shared by all virtual IPs, runs out, and an endpoint
// that left loses its clients for good.
func TestAffinity(t *testing.T) {
	flavors(t, func(t *testing.T, flavor Flavor) {
		const head = "service default/sticky:/TCP/IPv4 cluster-ip=10.96.0.10 external-ips=203.0.113.9 load-balancer-ips=203.0.113.10 port=80 node-port=30080 usable affinity-seconds="
		lists := []string{"\n  common 10.244.1.5:8080", "\n  common 10.244.1.6:8080", "\n  common 10.244.2.5:8080", "\n  common 10.244.2.6:8080"}
		l, all := newLab(t), parseTable(t, head+"3600"+strings.Join(lists, ""))
		serve(t, l, all)
		d := backendIn(t, l, kernelConfig(flavor))
		sync(t, d, everything(all))
		c := client(trace.External)
		first := ask(t, l, c, "10.96.0.10:80").Endpoint
		for range 5 {
			for _, to := range []string{"10.96.0.10:80", "203.0.113.9:80", "203.0.113.10:80", "192.0.2.11:30080"} {
				if got := ask(t, l, c, to).Endpoint; got != first {
					t.Fatalf("%s: %v, want %v as before", to, got, first)
				}
			}
		}
		now := all
		for i, text := range lists { // leave and come back
			if !strings.Contains(text, first.String()) {
				continue
			}
			rest := append(append([]string{}, lists[:i]...), lists[i+1:]...)
			for _, next := range []*fwd.Table{parseTable(t, head+"3600"+strings.Join(rest, "")), all} {
				next, changed, err := now.Apply(fwd.DiffTables(now, next))
				if err != nil {
					t.Fatal(err)
				}
				sync(t, d, step{now, next, dataplane.Delta{Changed: changed}})
				if now = next; next.Part(fwd.Common).Len() < all.Part(fwd.Common).Len() {
					if got := ask(t, l, c, "10.96.0.10:80").Endpoint; got == first {
						t.Fatalf("%v was removed, and still chosen", got)
					}
				}
			}
		}
		second := ask(t, l, c, "10.96.0.10:80").Endpoint
		if second == first {
			t.Errorf("the client went back to %v, want the one it had meanwhile", first)
		}
		// One second of affinity: soon the client sees others.
		short, changed, err := now.Apply(fwd.DiffTables(now, parseTable(t, head+"1"+strings.Join(lists, ""))))
		if err != nil {
			t.Fatal(err)
		}
		sync(t, d, step{now, short, dataplane.Delta{Changed: changed}})
		seen := map[netip.AddrPort]bool{}
		tick := time.NewTicker(1200 * time.Millisecond)
		defer tick.Stop()
		for range 12 {
			if seen[ask(t, l, c, "10.96.0.10:80").Endpoint] = true; len(seen) > 1 {
				return
			}
			<-tick.C
		}
		t.Errorf("after the time-out the client still saw %v only", seen)
	})
}

// TestAdoptionWithoutGap holds that a restart, a change of the table, a repair and a change of flavour lose no connection.
func TestAdoptionWithoutGap(t *testing.T) {
	l, table := newLab(t), parseTable(t, webTable)
	more := parseTable(t, webTable+manyServices(60))
	serve(t, l, table)
	var d dataplane.Interface
	start := func(flavor Flavor, table *fwd.Table) {
		d = backendIn(t, l, kernelConfig(flavor))
		sync(t, d, everything(table))
	}
	start(FlavorNFT, table)
	lost, asked, stop, done := 0, 0, make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			a, err := l.Ask(client(trace.Pod), fwd.TCP, netip.MustParseAddrPort("10.96.0.10:80"))
			if err != nil {
				done <- err
				return
			}
			if asked++; !a.Endpoint.IsValid() {
				lost++
			}
		}
	}()
	for _, flavor := range []Flavor{FlavorNFT, FlavorLegacy, FlavorNFT} {
		for range 3 {
			start(flavor, table)
			start(flavor, more)
			run(t, l, "", "iptables-"+string(flavor), "--wait", "-F", forwardChain)
			sync(t, d, everything(table))
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if lost > 0 || asked < 100 {
		t.Errorf("%d of %d connections lost", lost, asked)
	}
}

func manyServices(n int) string {
	var b strings.Builder
	for i := range n {
		ip := netip.AddrFrom4([4]byte{10, 96, 1, byte(i)})
		b.WriteString("service default/s" + ip.String() + ":/TCP/IPv4 cluster-ip=" + ip.String() + " port=80 usable\n  common 10.244.1.7:80\n")
	}
	return b.String()
}

// TestOtherFlavor holds that what a predecessor left in the other flavour is gone after the first sync.
func TestOtherFlavor(t *testing.T) {
	k := newKernel(t, FlavorNFT)
	table := parseTable(t, webTable)
	clean := k.dump(t)
	sync(t, k.open(t), everything(table))
	legacy := &kernel{Namespace: k.Namespace, flavor: FlavorLegacy, fault: &fault{}}
	sync(t, legacy.open(t), everything(table))
	if got := k.dump(t); got != clean {
		t.Errorf("left in the nft flavour:\n%s", got)
	}
}

// TestDetect holds the order: the kubelet's hint, then the flavour with more rules, then nft.
func TestDetect(t *testing.T) {
	detected := func(k *kernel) (flavor Flavor) {
		t.Helper()
		err := k.Do(func() (err error) {
			flavor, err = detect(context.Background(), execRunner{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return flavor
	}
	legacy, nft := newKernel(t, FlavorLegacy), newKernel(t, FlavorNFT)
	if got := detected(nft); got != FlavorNFT {
		t.Errorf("empty host: %s, want nft", got)
	}
	if err := legacy.restore("*nat\n-A PREROUTING -j ACCEPT\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	if got := detected(legacy); got != FlavorLegacy {
		t.Errorf("legacy rules: %s, want legacy", got)
	}
	hinted := &kernel{Namespace: legacy.Namespace, flavor: FlavorNFT, fault: &fault{}}
	if err := hinted.restore("*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	if got := detected(legacy); got != FlavorNFT {
		t.Errorf("hint in nft next to legacy rules: %s, want nft", got)
	}
}

// TestLock holds that another holder of the xtables lock delays a sync and does not break it, and that a cancelled context
// ends the waiting.
func TestLock(t *testing.T) {
	k := newKernel(t, FlavorLegacy)
	d, table := k.open(t), parseTable(t, webTable)
	lock, err := os.OpenFile("/run/xtables.lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := d.Sync(short, &fwd.Table{}, table, dataplane.Delta{All: true}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("sync under the lock: error %v, want that of the context", err)
	}
	synced := make(chan error)
	go func() {
		_, err := d.Sync(context.Background(), &fwd.Table{}, table, dataplane.Delta{All: true})
		synced <- err
	}()
	select {
	case err := <-synced:
		t.Errorf("sync did not wait for the lock, error %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if err := <-synced; err != nil {
		t.Errorf("sync after the lock: %v", err)
	}
}

// lockedRunner says that the lock is held, some times; then something else is wrong.
type lockedRunner struct{ left *int }

func (r lockedRunner) run(context.Context, call) error {
	if *r.left--; *r.left >= 0 {
		return &commandError{"iptables-restore", 4, "Another app is currently holding the xtables lock. Stopped waiting after 5s."}
	}
	return &commandError{"iptables-restore", 4, "line 2: RULE_APPEND failed (No such file or directory)"}
}

func TestRetryOnlyWhileLocked(t *testing.T) {
	left := 3
	err := commands{}.write(context.Background(), lockedRunner{&left}, nil)
	if left != -1 || err == nil || !strings.Contains(err.Error(), "RULE_APPEND") {
		t.Errorf("%d tries too few, error %v; want one try after the lock was free, and its error", left+1, err)
	}
}

// TestAuditCheap holds that an audit reads nothing while the kernel says that nobody changed anything, own writes or not.
func TestAuditCheap(t *testing.T) {
	k := newKernel(t, FlavorNFT)
	var b *Backend
	if err := k.Do(func() (err error) {
		b, err = newBackend(context.Background(), k.config(), execRunner{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	d, table := k.Inside(b), parseTable(t, webTable)
	sync(t, d, everything(table))
	audit := func() int {
		reads := 0
		b.runner = countingRunner{execRunner{}, &reads}
		if ds, err := dataplane.Compare(context.Background(), d); err != nil || len(ds) > 0 {
			t.Fatalf("audit: %v, error %v", ds, err)
		}
		return reads
	}
	if audit() == 0 {
		t.Error("the first audit read nothing")
	}
	now, changed, err := table.Apply(fwd.DiffTables(table, parseTable(t, webTable+manyServices(3))))
	if err != nil {
		t.Fatal(err)
	}
	if r := sync(t, d, step{table, now, dataplane.Delta{Changed: changed}}); r.Writes != 1 {
		t.Errorf("%d writes, want 1", r.Writes)
	}
	if n := audit(); n != 0 {
		t.Errorf("audit after a write of our own ran %d commands, want none", n)
	}
	if err := k.restore("*filter\n:OTHER - [0:0]\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	if audit() == 0 {
		t.Error("audit after a foreign write read nothing")
	}
}

type countingRunner struct {
	runner
	n *int
}

func (r countingRunner) run(ctx context.Context, c call) error {
	*r.n++
	return r.runner.run(ctx, c)
}

// TestAuditBesideWrites holds that an audit reads while Syncs go on, takes nothing that they write for somebody else's, and
// finds what somebody else did.
func TestAuditBesideWrites(t *testing.T) {
	flavors(t, func(t *testing.T, flavor Flavor) {
		k := newKernel(t, flavor)
		d := k.open(t)
		two := [2]*fwd.Table{parseTable(t, manyServices(200)), parseTable(t, manyServices(201))}
		sync(t, d, everything(two[0]))
		writes := 0
		audit := func() []dataplane.Difference {
			t.Helper()
			a := d.Audit()
			read := make(chan error)
			go func() { read <- a.Read(context.Background()) }()
			write := func() {
				before, now := two[writes%2], two[(writes+1)%2]
				_, changed, err := before.Apply(fwd.DiffTables(before, now))
				if err != nil {
					t.Fatal(err)
				}
				sync(t, d, step{before, now, dataplane.Delta{Changed: changed}})
				writes++
			}
			write()
			write()
			if err := <-read; err != nil {
				t.Fatal(err)
			}
			return a.Differences()
		}
		for n := range 3 {
			if err := k.restore(fmt.Sprintf("*filter\n:OTHER-%d - [0:0]\nCOMMIT\n", n)); err != nil {
				t.Fatal(err)
			}
			if ds := audit(); len(ds) > 0 {
				t.Fatalf("our own writes are found: %v", ds)
			}
		}
		if err := k.restore("*nat\n-F FL-SERVICES\nCOMMIT\n"); err != nil {
			t.Fatal(err)
		}
		if ds := audit(); len(ds) != 1 {
			t.Errorf("of a chain without rules: %v", ds)
		}
	})
}
