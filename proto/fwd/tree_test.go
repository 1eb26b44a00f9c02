package fwd

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFill holds that a tree filled at once is the one that putting item by item makes: same items, same sums, and as good for
// what comes next. Later items of a key win; keys share hashes.
func TestFill(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var items []item[int, int]
		for n := range rng.IntN(3000) {
			key := rng.IntN(1000)
			items = append(items, item[int, int]{hash: uint64(key/3) * 0x9e3779b97f4a7c15, sum: rng.Uint64(), key: key, value: n})
		}
		var put, filled tree[int, int]
		e := new(edit)
		for _, it := range items {
			put.put(e, it)
		}
		filled.fill(e, slices.Clone(items))
		same := func(when string) {
			t.Helper()
			if got, want := slices.Collect(filled.all()), slices.Collect(put.all()); !slices.Equal(got, want) ||
				filled.n != put.n || filled.root.total() != put.root.total() {
				t.Fatalf("seed %d, %s: %d items with sum %x, want %d with %x", seed, when, filled.n, filled.root.total(), put.n, put.root.total())
			}
		}
		same("filled")
		for range 500 {
			it := item[int, int]{sum: rng.Uint64(), key: rng.IntN(1500), value: rng.Int()}
			it.hash = uint64(it.key/3) * 0x9e3779b97f4a7c15
			if rng.IntN(2) == 0 {
				put.put(e, it)
				filled.put(e, it)
			} else if put.remove(e, it.hash, it.key) != filled.remove(e, it.hash, it.key) {
				t.Fatalf("seed %d: key %d is in one of them", seed, it.key)
			}
		}
		same("changed")
		filled.compact(new(edit))
		same("compacted")
	}
}
