package observe

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// waiter waits for nodes to hold a revision.
type waiter struct {
	revision uint64
	// absent: nodes that are not connected are waited for as well.
	absent bool
	// pending are the nodes that do not hold it yet; done is closed when there are none.
	pending map[string]struct{}
	done    chan struct{}
	// cause is set in a sample: what the time until done is counted from.
	cause time.Time
}

// maxSamples bounds how many revisions are measured at one time for the last-node histogram.
const maxSamples = 4

// Published notes a revision as it comes into being, and measures, unless enough others are being measured, how long
// the last connected node takes to hold it. cause is when its oldest event was heard of.
func (o *Observer) Published(revision uint64, cause time.Time) {
	if cause.IsZero() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sampled >= maxSamples {
		return
	}
	w := o.waitFor(revision, false, nil)
	if len(w.pending) == 0 {
		return // it concerns nobody who is connected
	}
	w.cause = cause
	o.sampled++
}

// Wait returns when all connected nodes hold everything up to a revision that has been published. Nodes that come later,
// or whose stream ends meanwhile, are not waited for. The error names those that are missing when ctx ends.
func (o *Observer) Wait(ctx context.Context, revision uint64) error {
	return o.wait(ctx, revision, false)
}

// WaitAll is Wait for all Nodes that there are and for all that ever connected and have not been forgotten: a node without a
// stream still forwards by its old table.
func (o *Observer) WaitAll(ctx context.Context, revision uint64) error {
	return o.wait(ctx, revision, true)
}

func (o *Observer) wait(ctx context.Context, revision uint64, absent bool) error {
	var exist []string
	if absent {
		exist = o.exist()
	}
	o.mu.Lock()
	w := o.waitFor(revision, absent, exist)
	o.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.waiters, w)
	if len(w.pending) == 0 {
		return nil
	}
	return fmt.Errorf("wait for revision %d: missing on %s: %w", revision, some(w.pending), ctx.Err())
}

// waitFor makes a waiter, registered if it has anything to wait for: the nodes that connected, and those that exist. The lock
// is held.
func (o *Observer) waitFor(revision uint64, absent bool, exist []string) *waiter {
	w := &waiter{revision: revision, absent: absent, pending: map[string]struct{}{}, done: make(chan struct{})}
	for name, n := range o.nodes {
		if (n.connected && n.through() < revision) || (!n.connected && absent) {
			w.pending[name] = struct{}{}
		}
	}
	for _, name := range exist {
		if _, seen := o.nodes[name]; !seen {
			w.pending[name] = struct{}{}
		}
	}
	if len(w.pending) == 0 {
		close(w.done)
		return w
	}
	o.waiters[w] = struct{}{}
	return w
}

// advanced tells the waiters that a node applied something. The lock is held.
func (o *Observer) advanced(name string, n *node) {
	if len(o.waiters) == 0 {
		return
	}
	through := n.through()
	for w := range o.waiters {
		if through >= w.revision {
			o.resolve(w, name)
		}
	}
}

// resolve takes a node off a waiter. The lock is held.
func (o *Observer) resolve(w *waiter, name string) {
	delete(w.pending, name)
	if len(w.pending) > 0 {
		return
	}
	delete(o.waiters, w)
	close(w.done)
	if !w.cause.IsZero() {
		o.sampled--
		o.metrics.lastNode.Observe(o.now().Sub(w.cause).Seconds())
	}
}

// some lists the first names.
func some(names map[string]struct{}) string {
	const most = 10
	sorted := slices.Sorted(maps.Keys(names))
	if len(sorted) <= most {
		return strings.Join(sorted, ", ")
	}
	return fmt.Sprintf("%s and %d more nodes", strings.Join(sorted[:most], ", "), len(sorted)-most)
}
