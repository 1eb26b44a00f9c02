package nftables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// memory is a set of clients and the endpoints that they may have.
type memory struct {
	set  string
	list []netip.AddrPort
}

// memories are all sets of clients.
func (st *state) memories() []memory {
	var ms []memory
	for id := range st.ports {
		ms = append(ms, st.memoriesOf(id)...)
	}
	slices.SortFunc(ms, func(a, b memory) int { return strings.Compare(a.set, b.set) })
	return ms
}

func (st *state) memoriesOf(id fwd.ID) []memory {
	h, ok := st.ports[id]
	if !ok || h.port.AffinitySeconds == 0 {
		return nil
	}
	w := portPlan{settings: st.settings, id: id}
	return []memory{{w.name(false, clientsSet), h.lists.cluster}, {w.name(true, clientsSet), h.lists.local}}
}

// sticky are the sets of clients of some Service ports.
func (st *state) sticky(ids []fwd.ID) map[string]memory {
	ms := map[string]memory{}
	for _, id := range ids {
		for _, m := range st.memoriesOf(id) {
			ms[m.set] = m
		}
	}
	return ms
}

// lost are the sets of clients whose list had endpoints before that it has no longer.
func (st *state) lost(before map[string]memory, ids []fwd.ID) []memory {
	var ms []memory
	for _, id := range ids {
		for _, m := range st.memoriesOf(id) {
			if slices.ContainsFunc(before[m.set].list, func(e netip.AddrPort) bool { return !slices.Contains(m.list, e) }) {
				ms = append(ms, m)
			}
		}
	}
	return ms
}

// forgets is how often a removal is tried that loses against entries' time-outs.
const forgets = 20

// forget removes clients from memory whose endpoint has left the list. Rules no longer learn such by then.
func (f *family) forget(ms []memory, report *dataplane.Report) error {
	for _, m := range ms {
		var err error
		for range forgets {
			err = f.forgetOnce(m, report)
			if !errors.Is(err, unix.ENOENT) && !errors.Is(err, errInterrupted) {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("forget clients of %s: %w", m.set, err)
		}
	}
	return nil
}

func (f *family) forgetOnce(m memory, report *dataplane.Report) error {
	known := make(map[string]bool, len(m.list))
	for _, e := range m.list {
		known[endpointData(e)] = true
	}
	b := newBatch(f.language)
	err := elements(f.kernel, f.language, m.set, func(e Element) {
		if !known[e.Data] {
			b.element(unix.NFT_MSG_DELSETELEM, Element{Set: e.Set, Key: e.Key})
		}
	})
	if err != nil || b.empty() {
		return err
	}
	if err := f.kernel.transact(b); err != nil {
		return err
	}
	report.Writes++
	return nil
}
