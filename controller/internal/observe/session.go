package observe

import "time"

// Session is one stream of one node. What it hears after a newer stream of the node was accepted is ignored.
type Session struct {
	observer *Observer
	node     string
	sequence uint64
}

// current returns the node if this is its newest stream. The Observer's lock is held.
func (s *Session) current() (*node, bool) {
	n, ok := s.observer.nodes[s.node]
	return n, ok && n.agent.Sequence == s.sequence && n.connected
}

// Sent notes a revision on its way; cause is zero where none is known.
func (s *Session) Sent(number uint64, cause time.Time) {
	o := s.observer
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if n, ok := s.current(); ok && len(n.outstanding) < maxOutstanding {
		n.outstanding = append(n.outstanding, sent{number: number, cause: cause, at: now})
	}
}

// Applied notes that the node's kernel holds a revision, after programming it for took.
func (s *Session) Applied(number uint64, took time.Duration) {
	o := s.observer
	o.metrics.applied.Inc()
	o.metrics.programming.Observe(took.Seconds())
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	n, ok := s.current()
	if !ok {
		return
	}
	n.applied, n.failure, n.reported = max(n.applied, number), "", now
	done := 0
	for done < len(n.outstanding) && n.outstanding[done].number <= number {
		if cause := n.outstanding[done].cause; !cause.IsZero() {
			o.metrics.propagation.Observe(now.Sub(cause).Seconds())
		}
		done++
	}
	n.outstanding = append(n.outstanding[:0], n.outstanding[done:]...)
	o.advanced(s.node, n)
}

// Failed notes that the node's kernel refused a revision.
func (s *Session) Failed(_ uint64, reason string) {
	o := s.observer
	o.metrics.failed.Inc()
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if n, ok := s.current(); ok {
		n.failure, n.reported = reason, now
	}
}

// Closed notes the end of the stream. The node's kernel goes on with what it holds.
func (s *Session) Closed(error) {
	o := s.observer
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	n, ok := s.current()
	if !ok {
		return
	}
	n.applied = n.through()
	n.connected, n.since, n.outstanding, n.agent.Position = false, now, nil, nil
	if n.forgotten {
		delete(o.nodes, s.node)
	}
	for w := range o.waiters {
		if !w.absent {
			o.resolve(w, s.node)
		}
	}
}
