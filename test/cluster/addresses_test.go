package cluster

import (
	"net/netip"
	"testing"
)

// TestPlanHasNoOverlap looks at the corners of the plan: every address of one kind in
// its range, and no range inside another.
func TestPlanHasNoOverlap(t *testing.T) {
	for _, index := range []int{0, 1, MaxIndex} {
		a := addresses{index: index}
		for family := range 2 {
			link := netip.PrefixFrom(a.apiServer()[family], linkBits(a.apiServer()[family])).Masked()
			ranges := []netip.Prefix{link, a.pods()[family], a.services()[family]}
			for i, one := range ranges {
				for _, other := range ranges[i+1:] {
					if one.Overlaps(other) {
						t.Errorf("index %d: %s overlaps %s", index, one, other)
					}
				}
			}
			seen := map[netip.Addr]bool{a.apiServer()[family]: true, a.controller()[family]: true, a.testBed()[family]: true}
			for n := 1; n <= MaxNodes; n++ {
				addr, pods := a.node(n)[family], a.nodePods(n)[family]
				if seen[addr] || !link.Contains(addr) {
					t.Errorf("index %d: node %d has %s, taken or outside %s", index, n, addr, link)
				}
				seen[addr] = true
				if !a.pods()[family].Contains(pods.Addr()) || pods != pods.Masked() {
					t.Errorf("index %d: node %d has Pods %s, not a network in %s", index, n, pods, a.pods()[family])
				}
				if n > 1 && pods == a.nodePods(n - 1)[family] {
					t.Errorf("index %d: nodes %d and %d share %s", index, n-1, n, pods)
				}
			}
			for _, virtual := range [][]netip.Addr{a.dns(), a.kubernetes()} {
				if !a.services()[family].Contains(virtual[family]) {
					t.Errorf("index %d: %s is outside %s", index, virtual[family], a.services()[family])
				}
			}
		}
	}
}

func TestPlansOfTwoClustersAreApart(t *testing.T) {
	for family := range 2 {
		for one := range MaxIndex + 1 {
			for other := range one {
				a, b := addresses{index: one}, addresses{index: other}
				if a.pods()[family].Overlaps(b.pods()[family]) {
					t.Errorf("Pods of %d and %d overlap", one, other)
				}
				if a.apiServer()[family] == b.apiServer()[family] || a.etcd() == b.etcd() {
					t.Errorf("servers of %d and %d share an address", one, other)
				}
			}
		}
	}
}
