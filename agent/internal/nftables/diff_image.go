package nftables

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
)

// recall tells the slots of lists as the kernel has them.
func (img *image) recall() func(pool, frontend) []netip.AddrPort {
	slots := map[place]map[uint32]netip.AddrPort{}
	for _, el := range img.elements {
		if !strings.HasSuffix(el.Set, endpointsSet) || len(el.Key) < wordSize {
			continue
		}
		n := len(el.Key) - wordSize
		list := place{el.Set, el.Key[:n]}
		if slots[list] == nil {
			slots[list] = map[uint32]netip.AddrPort{}
		}
		if e, ok := endpointOf(el.Data); ok {
			slots[list][binary.NativeEndian.Uint32([]byte(el.Key[n:]))] = e
		}
	}
	return func(p pool, f frontend) []netip.AddrPort {
		var list []netip.AddrPort
		has := slots[place{p.prefix() + endpointsSet, string(f.key())}]
		for n := range uint32(len(has)) {
			list = append(list, has[n]) // a gap is an invalid address, which nobody wants
		}
		return list
	}
}

// diffImage compares what the kernel has with what it should have. usable is false when the table itself, a base chain or
// a set is of another kind than ours, so that only a new table helps.
func (e *edit) diffImage(l *language, has image, elements []Element, want structure) (usable bool) {
	ds := has.structureDifferences(l, want)
	for _, d := range ds {
		switch {
		case d.beyondRepair:
			return false
		case d.problem == "foreign" && d.set:
			e.dropSets = append(e.dropSets, d.name)
		case d.problem == "foreign":
			e.dropChains = append(e.dropChains, d.name)
		case d.set:
			i := slices.IndexFunc(want.sets, func(s Set) bool { return s.Name == d.name })
			e.addSets = append(e.addSets, want.sets[i])
		default:
			i := slices.IndexFunc(want.chains, func(c Chain) bool { return c.Name == d.name })
			e.addChain(want.chains[i], d.problem == "missing")
		}
	}
	e.diffElements(has.elements, elements)
	e.sort()
	return true
}

// objectDifference is a set or chain that is not as it should be.
type objectDifference struct {
	set           bool
	name, problem string
	beyondRepair  bool
}

func (img *image) structureDifferences(l *language, want structure) []objectDifference {
	var ds []objectDifference
	sets, chains := map[string]bool{}, map[string]bool{}
	for _, s := range want.sets {
		sets[s.Name] = true
		switch d, ok := img.sets[s.Name]; {
		case !ok:
			ds = append(ds, objectDifference{set: true, name: s.Name, problem: "missing"})
		case !d.like(definition(s)):
			ds = append(ds, objectDifference{set: true, name: s.Name, problem: "changed", beyondRepair: true})
		}
	}
	for _, c := range want.chains {
		chains[c.Name] = true
		switch h, ok := img.chains[c.Name]; {
		case !ok:
			ds = append(ds, objectDifference{name: c.Name, problem: "missing"})
		case !h.standsLike(c.Hook):
			ds = append(ds, objectDifference{name: c.Name, problem: "changed", beyondRepair: true})
		case !slices.EqualFunc(h.rules, c.Rules, func(has []expr.Any, r Rule) bool { return has != nil && sameRule(byte(l.nf), has, r.Exprs) }):
			ds = append(ds, objectDifference{name: c.Name, problem: "changed"})
		}
	}
	for name := range img.sets {
		if !sets[name] {
			ds = append(ds, objectDifference{set: true, name: name, problem: "foreign"})
		}
	}
	for name := range img.chains {
		if !chains[name] {
			ds = append(ds, objectDifference{name: name, problem: "foreign"})
		}
	}
	slices.SortFunc(ds, func(a, b objectDifference) int { return strings.Compare(a.name, b.name) })
	return ds
}

// like compares what kernels of all versions tell: the length of verdicts is none of it.
func (d setDefinition) like(o setDefinition) bool {
	if d.dataType == typeVerdict {
		d.dataLen = o.dataLen
	}
	return d == o
}

func (h heldChain) standsLike(at *hook) bool {
	if at == nil || !h.hooked {
		return at == nil && !h.hooked
	}
	return h.number == at.number && h.priority == uint32(at.priority) && h.policy == policyAccept
}
