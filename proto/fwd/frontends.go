package fwd

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
)

// A backend that is itself a frontend of the same table (virtual IP, protocol and port of a Service port) would send
// packets to a place that exists in no network. The controller leaves such backends out; a table refuses them a second
// time, since an address alone tells nothing: node addresses serve as load-balancer IPs and as backends.

// frontend is a virtual IP, port and protocol, as bytes.
type frontend string

func frontendOf(p Protocol, a netip.AddrPort) frontend {
	b := binary.BigEndian.AppendUint16([]byte{byte(p)}, a.Port())
	return frontend(append(b, a.Addr().AsSlice()...))
}

// hash places a frontend; unlike the hash of keys it is nobody else's business, and cheap.
func (f frontend) hash() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(f)) // never fails
	return h.Sum64()
}

func (p *Port) frontends() []frontend {
	var fs []frontend
	for _, ip := range p.VirtualIPs() {
		fs = append(fs, frontendOf(p.Protocol, netip.AddrPortFrom(ip, p.ServicePort.Port)))
	}
	return fs
}

// count adds n to how many Service ports have the frontends, and notes those that are new to the table, or gone from it.
func (v *view) count(fs []frontend, n int) {
	for _, f := range fs {
		hash := f.hash()
		it, _ := v.table.frontends.get(hash, f)
		it.hash, it.key, it.value = hash, f, it.value+n
		if it.value == 0 {
			v.table.frontends.remove(v.edit, hash, f)
		} else {
			v.table.frontends.put(v.edit, it)
		}
		v.turned[f] = struct{}{}
	}
}

// refuse holds back every backend that is a frontend or of the wrong family, and gives back those that no longer are. Lists of
// Service ports that did not change themselves are searched only when a frontend came or went, which an endpoint's change never does.
func (v *view) refuse() {
	ids := slices.Clone(v.changed.Ports)
	if len(v.turned) > 0 {
		for it := range v.table.ports.all() {
			if v.ports[it.key] == nil && it.value.meets(v.turned) {
				ids = append(ids, it.key)
			}
		}
		slices.Sort(ids)
		v.changed.Ports = ids
	}
	for _, id := range ids {
		it, ok := v.table.ports.get(uint64(id), id)
		if !ok {
			continue
		}
		back := func(b Backend) bool { return it.value.misfits(b) || v.table.isFrontend(it.value.Protocol, b.Addr) }
		if !it.value.partsAnew(back) {
			continue
		}
		next := *it.value
		next.hold(back)
		v.table.refused += next.heldBack() - it.value.heldBack()
		it.value = &next
		v.table.ports.put(v.edit, it)
	}
}

// misfits reports whether a backend is of the other family. As long as the Service port is not known, none is.
func (p *Port) misfits(b Backend) bool { return p.Name != "" && FamilyOf(b.Addr.Addr()) != p.Family }

func (t *Table) isFrontend(p Protocol, a netip.AddrPort) bool {
	f := frontendOf(p, a)
	_, ok := t.frontends.get(f.hash(), f)
	return ok
}

// meets reports whether a backend of the Service port, held back or not, is one of the frontends.
func (p *Port) meets(fs map[frontend]struct{}) bool {
	is := func(b Backend) bool {
		_, ok := fs[frontendOf(p.Protocol, b.Addr)]
		return ok
	}
	for _, s := range Scopes() {
		if slices.ContainsFunc(p.lists[s], is) || slices.ContainsFunc(p.heldIn(s), is) {
			return true
		}
	}
	return false
}

// partsAnew reports whether hold has anything to do.
func (p *Port) partsAnew(back func(Backend) bool) bool {
	return p.held != nil || slices.ContainsFunc(p.lists[:], func(l []Backend) bool { return slices.ContainsFunc(l, back) })
}

// hold parts the backends anew into those in the lists and those held back.
func (p *Port) hold(back func(Backend) bool) {
	for _, s := range Scopes() {
		was := p.heldIn(s)
		if !slices.ContainsFunc(p.lists[s], back) && was == nil {
			continue
		}
		all := slices.Concat(p.lists[s], was)
		slices.SortFunc(all, compareBackends)
		p.lists[s] = only(all, func(b Backend) bool { return !back(b) })
		p.setHeld(s, only(all, back))
	}
}

// heldIn returns the backends of one part that are held back.
func (p *Port) heldIn(s Scope) []Backend {
	if p.held == nil {
		return nil
	}
	return p.held[s]
}

// setHeld says what is held back in one part.
func (p *Port) setHeld(s Scope, list []Backend) {
	if len(list) == 0 && p.heldIn(s) == nil {
		return
	}
	held := &[numScopes][]Backend{} // what there was is shared with earlier tables
	if p.held != nil {
		*held = *p.held
	}
	if held[s] = list; len(list) == 0 {
		held[s] = nil
	}
	if p.held = held; p.heldBack() == 0 {
		p.held = nil
	}
}

func (p *Port) heldBack() int {
	n := 0
	for _, s := range Scopes() {
		n += len(p.heldIn(s))
	}
	return n
}
