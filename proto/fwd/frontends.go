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

// refuse holds back every backend that is a frontend, and gives back those that no longer are. Lists of Service ports that
// did not change themselves are searched only when a frontend came or went, which an endpoint's change never does.
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
		next := *it.value
		if next.hold(func(b Backend) bool { return v.table.isFrontend(next.Protocol, b.Addr) }) {
			v.table.refused += next.heldBack() - it.value.heldBack()
			it.value = &next
			v.table.ports.put(v.edit, it)
		}
	}
}

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
		if slices.ContainsFunc(p.lists[s], is) || slices.ContainsFunc(p.held[s], is) {
			return true
		}
	}
	return false
}

// hold parts the backends anew into those in the lists and those held back, and reports whether that changed anything.
func (p *Port) hold(back func(Backend) bool) (changed bool) {
	for _, s := range Scopes() {
		if !slices.ContainsFunc(p.lists[s], back) && p.held[s] == nil {
			continue
		}
		all := slices.Concat(p.lists[s], p.held[s])
		slices.SortFunc(all, compareBackends)
		p.held[s] = only(all, back)
		p.lists[s] = only(all, func(b Backend) bool { return !back(b) })
		if len(p.held[s]) == 0 {
			p.held[s] = nil
		}
		changed = true
	}
	return changed
}

func (p *Port) heldBack() int {
	n := 0
	for _, s := range Scopes() {
		n += len(p.held[s])
	}
	return n
}
