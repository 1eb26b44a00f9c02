package iptables

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/proto/fwd"
)

// shape is a tree as data: the keys and IDs of each chain that it needs, and the ways from chain to chain.
func shape(t *tree) map[string]any {
	s := map[string]any{}
	t.walk(func(l limb) {
		if l.kids == nil {
			s[t.chain(l.spot)] = append([]treeEntry{}, l.entries...)
			return
		}
		var below []string
		for _, kid := range l.limbs() {
			below = append(below, t.chain(kid.spot))
		}
		s[t.chain(l.spot)] = below
	})
	return s
}

// TestTreePath holds that a tree depends on what is in it, not on how it came there.
func TestTreePath(t *testing.T) {
	type claim struct {
		key key
		id  fwd.ID
	}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		grown, held := &tree{name: "T", bits: 32}, map[claim]bool{}
		space := 1 + rng.IntN(300)
		for range rng.IntN(2000) {
			n := rng.IntN(space)
			c := claim{key{addr: netip.AddrFrom4([4]byte{10, byte(rng.IntN(2)), byte(n >> 8), byte(n)})}, fwd.ID(rng.IntN(2))}
			if rng.IntN(2) == 0 {
				grown.add(c.key, c.id)
				held[c] = true
			} else {
				grown.remove(c.key, c.id)
				delete(held, c)
			}
		}
		direct := &tree{name: "T", bits: 32}
		for c := range held {
			direct.add(c.key, c.id)
		}
		if got, want := shape(grown), shape(direct); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: grown %v\nwant %v", seed, got, want)
		}
	}
}

// TestTreeRules holds that a packet to one of 10,000 Services meets tens of rules on its way to them, in both families, for
// addresses in a row and for random ones, and node ports likewise.
func TestTreeRules(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, next := range map[string]func(i int) key{
		"IPv4 in a row": func(i int) key { return key{addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})} },
		"IPv4 random": func(int) key {
			return key{addr: netip.AddrFrom4([4]byte{10, 96, byte(rng.Uint32()), byte(rng.Uint32())})}
		},
		"IPv6 random": func(int) key {
			return key{addr: netip.AddrFrom16([16]byte{0: 0xfd, 13: byte(rng.Uint32()), 14: byte(rng.Uint32()), 15: byte(rng.Uint32())})}
		},
		"IPv6 in steps of 2^16": func(i int) key { return key{addr: netip.AddrFrom16([16]byte{0: 0xfd, 12: byte(i >> 8), 13: byte(i)})} },
		"node ports":            func(i int) key { return key{port: uint16(30000 + i%2768)} },
	} {
		t.Run(name, func(t *testing.T) {
			tr := &tree{name: "T", bits: addrBits}
			if next(0).port != 0 {
				tr.bits = portBits
			} else if next(0).addr.Is4() {
				tr.bits = 32
			}
			for i := range 10000 {
				tr.add(next(i), 1)
			}
			deepest := 0
			tr.walk(func(l limb) {
				if l.bits == 0 {
					deepest = longest(l)
				}
			})
			t.Logf("at most %d dispatch rules", deepest)
			if deepest > 60 {
				t.Errorf("a packet meets up to %d dispatch rules and addresses, want at most 60", deepest)
			}
		})
	}
}

// longest counts rules to the last key of the worst leaf; every limb is a rule, every key in a leaf at least one.
func longest(l limb) int {
	if l.kids == nil {
		return len(l.entries)
	}
	most := 0
	below := l.limbs()
	for i, kid := range below {
		most = max(most, i+1+longest(kid))
	}
	return most
}

// TestTreeDispatch holds that the rules on the way to a key match it, and that each leaf's neighbours' do not.
func TestTreeDispatch(t *testing.T) {
	for _, f := range fwd.Families() {
		tr := &tree{name: "T", bits: min(addrBits, f.Bits())}
		ports := &tree{name: "P", bits: portBits}
		for i := range 300 {
			a := netip.AddrFrom4([4]byte{10, 96, byte(i >> 6), byte(i * 7)})
			if f == fwd.IPv6 {
				a = netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 6), 15: byte(i * 7)})
			}
			tr.add(key{addr: a}, 1)
			ports.add(key{port: uint16(30000 + 5*i)}, 1)
		}
		for _, one := range []*tree{tr, ports} {
			one.walk(func(l limb) {
				if l.kids != nil {
					return
				}
				r := one.match(f, fwd.TCP, l.spot)
				for e := range one.root.all {
					_, inside := one.find(l.spot)
					belongs := l.spot.bits == 0 || e.key.path()<<(64-l.spot.bits) == l.spot.path<<(64-l.spot.bits)
					if got := matchesKey(r, e.key); inside && got != belongs {
						t.Fatalf("%v: rule of %s on %v: %v, want %v", f, one.chain(l.spot), e.key, got, belongs)
					}
				}
			})
		}
	}
}

func matchesKey(r Rule, k key) bool {
	if k.port != 0 {
		return k.port >= r.DPort.Low && k.port <= r.DPort.High
	}
	a, m, want := k.addr.AsSlice(), r.Dst.Mask.AsSlice(), r.Dst.Addr.AsSlice()
	for i := range a {
		if a[i]&m[i] != want[i] {
			return false
		}
	}
	return true
}
