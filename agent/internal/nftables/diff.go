package nftables

import (
	"iter"
	"maps"
	"slices"
	"strings"
)

// edit is what has to be written. What comes and what is switched to comes first; what goes follows in a transaction of its
// own: a packet that is on its way in between finds either.
type edit struct {
	// table: there is no table yet, or (replaces) one that cannot be repaired.
	table, replaces bool

	addSets   []Set
	addChains []Chain // also those whose rules are written anew
	// fresh says which of addChains are not there yet.
	fresh map[string]bool
	add   []Element
	// replace is elements whose key is there with other data.
	replace []Element

	remove     []Element
	dropChains []string
	dropSets   []string
}

// diffElements compares elements; both may name an element more than once. It sorts them.
func (e *edit) diffElements(before, after []Element) {
	slices.SortFunc(before, Element.compare)
	slices.SortFunc(after, Element.compare)
	if len(before) == 0 {
		e.add = slices.CompactFunc(after, func(a, b Element) bool { return a.compare(b) == 0 })
		return
	}
	for len(before) > 0 || len(after) > 0 {
		switch c := order(before, after); {
		case c < 0:
			e.remove = append(e.remove, before[0])
			before = skip(before)
		case c > 0:
			e.add = append(e.add, after[0])
			after = skip(after)
		default:
			if !before[0].same(after[0]) {
				e.replace = append(e.replace, after[0])
			}
			before, after = skip(before), skip(after)
		}
	}
}

// order compares the first ones of two sorted lists, one of which may be empty.
func order(a, b []Element) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return a[0].compare(b[0])
}

// skip leaves the first element out, and all others with its key.
func skip(els []Element) []Element {
	n := 1
	for n < len(els) && els[n].compare(els[0]) == 0 {
		n++
	}
	return els[n:]
}

func (e Element) compare(o Element) int {
	if e.Set != o.Set {
		return strings.Compare(e.Set, o.Set)
	}
	return strings.Compare(e.Key, o.Key)
}

// diffStructure compares chains by their text, and sets by their names: a set of one name is the same in all plans.
func (e *edit) diffStructure(before, after structure) {
	old := map[string]string{}
	for _, c := range before.chains {
		old[c.Name] = c.rulesText()
	}
	for _, c := range after.chains {
		was, ok := old[c.Name]
		if !ok || was != c.rulesText() {
			e.addChain(c, !ok)
		}
		delete(old, c.Name)
	}
	e.dropChains = append(e.dropChains, slices.Collect(maps.Keys(old))...)
	sets := map[string]bool{}
	for _, s := range before.sets {
		sets[s.Name] = true
	}
	for _, s := range after.sets {
		if !sets[s.Name] {
			e.addSets = append(e.addSets, s)
		}
		delete(sets, s.Name)
	}
	e.dropSets = append(e.dropSets, slices.Collect(maps.Keys(sets))...)
}

func (e *edit) addChain(c Chain, fresh bool) {
	e.addChains = append(e.addChains, c)
	if fresh {
		if e.fresh == nil {
			e.fresh = map[string]bool{}
		}
		e.fresh[c.Name] = true
	}
}

func (c Chain) rulesText() string {
	var b strings.Builder
	for _, r := range c.Rules {
		b.WriteString(r.Text + "\n")
	}
	return b.String()
}

// sort puts everything into the order in which it is written.
func (e *edit) sort() {
	slices.SortFunc(e.addSets, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(e.addChains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	e.remove = slices.Collect(byRank(e.remove))
	slices.Reverse(e.remove)
	slices.Sort(e.dropChains)
	slices.Sort(e.dropSets)
	// Elements of a set that goes go with it. Elements that lead to chains must go before those, and do: they are removed.
	dropped := func(el Element) bool {
		_, found := slices.BinarySearch(e.dropSets, el.Set)
		return found && el.Jump == ""
	}
	e.remove = slices.DeleteFunc(e.remove, dropped)
}

// rank orders elements for loads of more than one transaction: what others lead to comes before.
func rank(set string) int {
	switch {
	case set == clusterIPSet:
		return 3 // rejects what the others do not take
	case strings.HasSuffix(set, internalSet), strings.HasSuffix(set, externalSet), strings.HasSuffix(set, externalLocal),
		strings.HasSuffix(set, rejectedSet):
		return 2
	case set == firewalledSet, strings.HasSuffix(set, affinityMap), strings.HasSuffix(set, learnMap):
		return 1
	}
	return 0
}

// ranks is how many ranks there are.
const ranks = 4

// byRank yields sorted elements in the order of their sets' ranks.
func byRank(els []Element) iter.Seq[Element] {
	return func(yield func(Element) bool) {
		for r := range ranks {
			for rest := els; len(rest) > 0; {
				n := 1
				for n < len(rest) && rest[n].Set == rest[0].Set {
					n++
				}
				if rank(rest[0].Set) == r {
					for _, el := range rest[:n] {
						if !yield(el) {
							return
						}
					}
				}
				rest = rest[n:]
			}
		}
	}
}
