package swarm

import (
	"slices"
	"sync"
)

// progress finds when all agents have applied a change. The first agent is the witness: it says in which revision a change
// was; the change is applied when all agents hold that revision. An agent that gets several revisions as one difference
// holds the last of them; a witness to whom that happens dates a change later than it was, never earlier.
type progress struct {
	mu sync.Mutex // guards what follows
	// at is what each agent holds; the first one is the witness.
	at []position
	// pending are revisions that the witness holds and somebody else does not, by number.
	pending []pending
	done    []Applied
}

type pending struct {
	number  uint64
	missing int
	changes []Applied
}

// step is one revision that an agent (by its index) holds since a time in microseconds since 1970; changes is what it
// changed, of the witness.
type step struct {
	agent int
	position
	changes []Applied
	at      int64
}

// position is a revision of an epoch.
type position struct{ epoch, number uint64 }

// moved says that an agent has made a step.
func (p *progress) moved(s step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, witness := p.at[s.agent], p.at[0].epoch
	p.at[s.agent] = s.position
	if s.agent == 0 && s.epoch != witness {
		witness, p.pending = s.epoch, nil
	}
	if s.epoch != witness {
		return
	}
	for i := range p.pending {
		if q := &p.pending[i]; (before.epoch != witness || before.number < q.number) && q.number <= s.number {
			q.missing--
		}
	}
	if s.agent == 0 && len(s.changes) > 0 {
		missing := 0
		for _, at := range p.at {
			if at.epoch != witness || at.number < s.number {
				missing++
			}
		}
		p.pending = append(p.pending, pending{number: s.number, missing: missing, changes: s.changes})
	}
	p.pending = slices.DeleteFunc(p.pending, func(q pending) bool {
		if q.missing > 0 {
			return false
		}
		for _, c := range q.changes {
			c.At = s.at
			p.done = append(p.done, c)
		}
		return true
	})
}

// take returns what was applied since the last call.
func (p *progress) take() []Applied {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := p.done
	p.done = nil
	return done
}
