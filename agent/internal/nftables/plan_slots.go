package nftables

import "net/netip"

// fill puts endpoints into slots without gaps, and moves as few as possible: who stays keeps its slot, newcomers take those
// of who went, and if there are fewer, the last ones move into the gaps. With nothing before, the order is that of want.
func fill(before, want []netip.AddrPort) []netip.AddrPort {
	if len(before) == 0 {
		return want
	}
	stays := make(map[netip.AddrPort]bool, len(want))
	for _, e := range want {
		stays[e] = false
	}
	slots := make([]netip.AddrPort, 0, len(want))
	var gaps []int
	for _, e := range before {
		if placed, wanted := stays[e]; wanted && !placed {
			stays[e] = true
			slots = append(slots, e)
			continue
		}
		gaps = append(gaps, len(slots))
		slots = append(slots, netip.AddrPort{})
	}
	for _, e := range want {
		switch {
		case stays[e]:
		case len(gaps) > 0:
			slots[gaps[0]], gaps = e, gaps[1:]
		default:
			slots = append(slots, e)
		}
	}
	for _, gap := range gaps {
		for len(slots) > gap && !slots[len(slots)-1].IsValid() {
			slots = slots[:len(slots)-1]
		}
		if gap < len(slots) {
			slots[gap], slots = slots[len(slots)-1], slots[:len(slots)-1]
		}
	}
	return slots
}
