package oracle

import (
	"context"
	"fmt"
	"os"
	"runtime"
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
func (c *contest) rules(ctx context.Context, cluster *Cluster) (theirs Rules, ours map[Mode]Rules, err error) {
	theirs, err = c.kubeProxy.Rules(ctx, Edited(cluster, c.differences))
	if err != nil {
		return nil, nil, err
	}
	ours, err = Ours(ctx, cluster)
	return theirs, ours, err
}

// mismatches are those of one cluster.
func (c *contest) mismatches(ctx context.Context, cluster *Cluster) ([]Mismatch, error) {
	theirs, ours, err := c.rules(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return Compare(cluster, theirs, ours, c.differences)
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
