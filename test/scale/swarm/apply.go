package swarm

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

// apply makes the next table of a whole revision, and looks whether it may follow the one before.
func (a *agent) apply(c fwd.Change, number uint64) error {
	next, _, err := a.table.Apply(c)
	if err != nil {
		return fmt.Errorf("revision %d refused: %w", number, err)
	}
	now := time.Now().UnixMicro()
	a.mu.Lock()
	first := a.table.Len() == 0
	if number < a.number {
		a.swarm.backwards.Add(1)
	}
	a.table, a.number = next, number
	if !a.current {
		a.current = true
		a.swarm.becameCurrent(now)
	}
	a.inspect(next)
	epoch := a.epoch
	a.mu.Unlock()
	a.swarm.revisions.Add(1)
	var changes []Applied
	if a.index == 0 && !first {
		changes = backends(c.Parts[fwd.Common])
	}
	a.swarm.progress.moved(step{agent: a.index, position: position{epoch, number}, changes: changes, at: now})
	return nil
}

// inspect holds what no table may do. The caller has mu.
func (a *agent) inspect(t *fwd.Table) {
	if p, ok := t.Port(a.swarm.clock); ok {
		if p.Port < a.clock {
			a.swarm.backwards.Add(1)
		}
		a.clock = p.Port
	}
	if want := a.swarm.cfg.SteadyBackends; want > 0 {
		if p, ok := t.Port(a.swarm.steady); !ok || len(p.Cluster()) != want {
			a.swarm.emptied.Add(1)
		}
	}
}

// backends are those that a change puts or removes; a resume tells nothing of that.
func backends(c *fwd.PartChange) []Applied {
	if c == nil || c.Replace || len(c.Buckets) > 0 {
		return nil
	}
	// Of a backend's key, what comes before the address: kind, ID and port; see proto/fairlead/v1.
	const kind, prefix = 2, 1 + 8 + 2
	var all []Applied
	add := func(key string, present bool) {
		if key[0] != kind {
			return
		}
		if addr, ok := netip.AddrFromSlice([]byte(key[prefix:])); ok {
			all = append(all, Applied{Address: addr.String(), Present: present})
		}
	}
	for _, key := range c.Remove {
		add(key, false)
	}
	for _, r := range c.Put {
		add(r.Key, true)
	}
	return all
}
