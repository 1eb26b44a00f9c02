package oracle

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
	"github.com/fairlead/fairlead/test/cluster/binaries"
)

// clustersInTest is how many clusters one make test compares; TestSoakRandomClusters takes more.
const clustersInTest = 5000

// seed is 1, or what SEED says: a failure prints the command that repeats it.
func seed(t *testing.T) uint64 {
	t.Helper()
	text, ok := os.LookupEnv("SEED")
	if !ok {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("SEED=%s: want a number", text)
	}
	return n
}

// kubeProxyTool builds the other side, once.
func kubeProxyTool(t *testing.T) string {
	t.Helper()
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	tool, err := binaries.Oracle(t.Context(), root, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// contest is both sides, ready to be asked by one goroutine.
type contest struct {
	kubeProxy   *KubeProxy
	differences []Difference
}

func newContest(t *testing.T, tool string) *contest {
	t.Helper()
	k, err := StartKubeProxy(t.Context(), tool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil && t.Context().Err() == nil {
			t.Errorf("kube-proxy's rules: %v", err)
		}
	})
	return &contest{kubeProxy: k, differences: Differences()}
}

// rules asks both sides.
func (c *contest) rules(ctx context.Context, cluster *Cluster) (theirs, ours Rules, err error) {
	theirs, err = c.kubeProxy.Rules(ctx, Edited(cluster, c.differences))
	if err != nil {
		return nil, nil, err
	}
	ours, err = Ours(ctx, cluster)
	return theirs, ours, err
}

// mismatches are those of one cluster that no difference explains.
func (c *contest) mismatches(ctx context.Context, cluster *Cluster) ([]Mismatch, error) {
	theirs, ours, err := c.rules(ctx, cluster)
	if err != nil {
		return nil, err
	}
	all, err := Compare(cluster, theirs, ours)
	return Unexplained(cluster, all, c.differences), err
}

// report shrinks a cluster with a mismatch and prints what is left.
func (c *contest) report(t *testing.T, seed, number uint64, cluster *Cluster) {
	t.Helper()
	smallest := Shrink(cluster, func(candidate *Cluster) bool {
		m, err := c.mismatches(t.Context(), candidate)
		return err == nil && len(m) > 0
	})
	all, err := c.mismatches(t.Context(), smallest)
	if err != nil || len(all) == 0 {
		t.Errorf("cluster %d of seed %d: could not be shrunk: %v", number, seed, err)
		return
	}
	table, err := Table(t.Context(), smallest)
	if err != nil {
		table = err.Error()
	}
	t.Errorf("cluster %d of seed %d: %d packets differ, such as\n%v\n\nthe node's table:\n%s\nthe cluster, as small as it gets:\n%s\n\n"+
		"again with: SEED=%d go test -count=1 -run %s ./test/oracle/", number, seed, len(all), all[0], table, smallest.JSON(), seed, t.Name())
}

// tally counts features of clusters.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (y *tally) add(c *Cluster) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, f := range Features() {
		if f.Has(c) {
			y.counts[f.Name]++
		}
	}
}

// compareRandom compares clusters on all cores and fails on the first few that differ, and on features that were missing.
func compareRandom(t *testing.T, seed uint64, clusters int) {
	t.Helper()
	tool := kubeProxyTool(t)
	var next, probes atomic.Int64
	var failures atomic.Int32
	seen := tally{counts: map[string]int{}}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		c := newContest(t, tool)
		workers.Go(func() {
			for n := next.Add(1) - 1; n < int64(clusters) && failures.Load() < 3 && t.Context().Err() == nil; n = next.Add(1) - 1 {
				cluster := Generate(seed, uint64(n))
				seen.add(cluster)
				probes.Add(int64(len(Probes(cluster, fwd.IPv4)) + len(Probes(cluster, fwd.IPv6))))
				m, err := c.mismatches(t.Context(), cluster)
				switch {
				case err != nil:
					failures.Add(1)
					t.Errorf("cluster %d of seed %d: %v\n%s", n, seed, err, cluster.JSON())
				case len(m) > 0:
					failures.Add(1)
					c.report(t, seed, uint64(n), cluster)
				}
			}
		})
	}
	workers.Wait()
	if t.Failed() {
		return
	}
	for _, f := range Features() {
		if seen.counts[f.Name]*100 < clusters {
			t.Errorf("feature %q is in %d of %d clusters of seed %d: below 1 %%", f.Name, seen.counts[f.Name], clusters, seed)
		}
	}
	t.Logf("seed %d: %d clusters, %d packets, the same fate on both sides", seed, clusters, probes.Load())
}

func TestRandomClusters(t *testing.T) {
	compareRandom(t, seed(t), clustersInTest)
}

// mutation is a mistake that a backend could make, made in the text of our rules.
type mutation struct{ name, from, to string }

// mutations are tried one by one; the comparison must notice each.
func mutations() []mutation {
	return []mutation{
		{"an endpoint of another port", `(--to-destination \S+:8)\d\d\d`, `${1}999`},
		{"no translation", `(-A .*) -j DNAT --to-destination \S+`, `$1 -j RETURN`},
		{"an uneven choice", `--probability 0\.5\d*`, `--probability 0.6`},
		{"the last endpoint is never chosen", `(-A FL-SVC-\w+ -p tcp) -j DNAT --to-destination \S+`, `$1 -j RETURN`},
		{"no masquerade", `-j MARK --set-xmark 0x([1-9a-f]\w*)/0x\w+`, `-j MARK --set-xmark 0x0/0x0`},
		{"Pods are masqueraded", `(-A FL-OUTSIDE .*)-j RETURN`, `$1-j MARK --set-xmark 0x0/0x0`},
		{"the mark stays", `(-A FL-POSTROUTING )-j MARK --set-xmark 0x0/0x\w+`, `$1-j MARK --set-xmark 0x0/0x0`},
		{"no hairpin", `-m bpf --bytecode "[^"]*"`, `-m mark --mark 0x1/0x0`},
		{"reject becomes drop", `-j REJECT --reject-with \S+`, `-j DROP`},
		{"drop becomes nothing", `(-A FL-[CX]BLK.*)-j DROP`, `$1-j RETURN`},
		{"nothing is blocked from the host", `-A OUTPUT (.*)-j FL-OUTPUT`, `-A OUTPUT $1-j ACCEPT`},
		{"nothing is blocked on the way through", `(-A FL-FORWARD .*)-j (FL-\S+)`, `$1-j RETURN`},
		{"source ranges do not hold", `(-A FL-FW\S* .*)-j DROP`, `$1-j RETURN`},
		{"source ranges let nobody in", `(-A FL-FWL-\S+) -s \S+ -g \S+`, `$1 -j ACCEPT`},
		{"no short cut for the node", `(-A FL-EXT-\S+) -m addrtype --src-type LOCAL -g \S+`, `$1 -m addrtype --src-type LOCAL -j MARK --set-xmark 0x0/0x0`},
		{"affinity forgets", `--update --seconds \d+`, `--update --seconds 0000000001`},
		{"affinity holds for ever", `--update --seconds \d+`, `--update --seconds 4294967295`},
		{"affinity does not learn", `-m recent --set --name FL-`, `-m recent --set --name XX-`},
		{"node ports at loopback", ` ! -d 127.0.0.0/8`, ``},
		{"node ports at all addresses", ` -m addrtype --dst-type LOCAL`, ``},
		{"no health check", `(-A FL-HEALTH.*) -j ACCEPT`, `$1 -j RETURN`},
		{"invalid packets pass", `(-A FL-FORWARD .*INVALID) -j DROP`, `$1 -j RETURN`},
		{"replies are not accepted", `RELATED,ESTABLISHED -j ACCEPT`, `RELATED,ESTABLISHED -j RETURN`},
		{"marked packets are not accepted", `(-A FL-FORWARD .*--mark \S+) -j ACCEPT`, `$1 -j RETURN`},
		{"another protocol", `-p sctp`, `-p udp`},
		{"another address in the tree", `(-A FL-IP\S* -d 0\.0\.0\.\d+)/0\.\S+`, `$1/0.0.0.255`},
	}
}

// TestNoticesMistakes proves that the comparison is not blind: each mutation is noticed in some of the first clusters.
func TestNoticesMistakes(t *testing.T) {
	c := newContest(t, kubeProxyTool(t))
	pending := mutations()
	const clusters = 400
	for n := uint64(0); n < clusters && len(pending) > 0; n++ {
		cluster := Generate(seed(t), n)
		theirs, ours, err := c.rules(t.Context(), cluster)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Compare(cluster, theirs, ours)
		if err != nil {
			t.Fatal(err)
		}
		if len(Unexplained(cluster, all, c.differences)) > 0 {
			continue // TestRandomClusters tells
		}
		pending = slices.DeleteFunc(pending, func(m mutation) bool {
			noticed, err := m.notices(cluster, theirs, ours)
			if err != nil {
				t.Fatal(err)
			}
			return noticed
		})
	}
	for _, m := range pending {
		t.Errorf("%s: not noticed in %d clusters", m.name, clusters)
	}
}

// notices reports whether the comparison with a mutation of our rules finds anything; no if the mutation changes nothing.
func (m mutation) notices(cluster *Cluster, theirs, ours Rules) (bool, error) {
	mutated, changed := Rules{}, false
	for family, text := range ours {
		mutated[family] = regexp.MustCompile(m.from).ReplaceAllString(text, m.to)
		changed = changed || mutated[family] != text
	}
	if !changed {
		return false, nil
	}
	all, err := Compare(cluster, theirs, mutated)
	if err != nil {
		return false, fmt.Errorf("%s: %w", m.name, err)
	}
	return len(Unexplained(cluster, all, Differences())) > 0, nil
}

func TestGenerateRepeats(t *testing.T) {
	for n := range uint64(20) {
		first, second := Generate(7, n), Generate(7, n)
		if first.JSON() != second.JSON() {
			t.Fatalf("cluster %d of seed 7 is another one the second time", n)
		}
	}
	if Generate(7, 1).JSON() == Generate(8, 1).JSON() {
		t.Error("seeds 7 and 8 make the same cluster")
	}
}

func TestShrink(t *testing.T) {
	hasUDP := func(c *Cluster) bool { return strings.Contains(fmt.Sprint(c.Services), "UDP") }
	for n := uint64(0); ; n++ {
		c := Generate(1, n)
		if !hasUDP(c) || len(c.Services) < 3 {
			continue
		}
		before := c.JSON()
		s := Shrink(c, hasUDP)
		if !hasUDP(s) || len(s.Services) != 1 || len(s.Services[0].Spec.Ports) != 1 || len(s.EndpointSlices)+len(s.OtherNodes) > 0 {
			t.Errorf("cluster %d: shrunk to\n%s\nwant one Service with one UDP port", n, s.JSON())
		}
		if c.JSON() != before {
			t.Errorf("cluster %d: Shrink changed its argument", n)
		}
		return
	}
}
