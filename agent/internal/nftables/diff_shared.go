package nftables

// address is the bytes of an address, those of IPv4 first and then zeros: half of what a string with them takes.
type address [16]byte

// addressOf is what an element of a shared set is about: its key begins with it.
func (l *language) addressOf(el Element) (a address) {
	copy(a[:], el.Key[:l.family.Bits()/8])
	return a
}

// sharedElement is the inverse of addressOf.
func (l *language) sharedElement(set string, a address) Element {
	key := string(a[:l.family.Bits()/8])
	if set == hairpinSet {
		key += key
	}
	return Element{Set: set, Key: key}
}

// settleShared counts on, and puts the shared elements that are there before and after where they belong.
func (st *state) settleShared(before, after *sum) {
	settle := func(at place) {
		el := Element{Set: at.set, Key: at.key}
		if st.shared[el.Set][st.settings.addressOf(el)] > 0 {
			before.elements = append(before.elements, el)
		}
		if st.countShared(el, after.shared[at]-before.shared[at]) {
			after.elements = append(after.elements, el)
		}
	}
	for at := range before.shared {
		settle(at)
	}
	for at := range after.shared {
		if before.shared[at] == 0 {
			settle(at)
		}
	}
}

// countShared counts on, and reports whether anybody wants the element.
func (st *state) countShared(el Element, by int) bool {
	counts, at := st.shared[el.Set], st.settings.addressOf(el)
	n := counts[at] + int32(by)
	if n <= 0 {
		delete(counts, at)
		return false
	}
	counts[at] = n
	return true
}

// countAllShared counts the shared elements of a program.
func (st *state) countAllShared(p program) {
	for _, el := range p.elements {
		if shared(el.Set) {
			st.countShared(el, 1)
		}
	}
}
