package app

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/controller/internal/table"
	"github.com/fairlead/fairlead/controller/internal/trust/directory"
	"github.com/fairlead/fairlead/proto/fwd"
)

const (
	// memories is how many earlier states of all tables are kept for a rollback, and memoryPause the least time between
	// two of them: half an hour of steady change, days of a quiet cluster. They share what is equal.
	memories    = 30
	memoryPause = time.Minute
	// ordersWithin is how long the first tables wait for the owner's orders, once the API server answers.
	ordersWithin = 10 * time.Second
)

// owner carries out what the cluster's owner orders: tables that stay as they are, or go back to what they were. Its
// methods are called by the Feed's goroutine, but for order, and remember and changed, which the one calls who follows a leader.
type owner struct {
	store  *table.Store
	logger *slog.Logger
	// known is closed when the orders have been heard once; again has the Feed commit anew.
	known <-chan struct{}
	again func()
	// say tells what is being held (0 nothing, 1 frozen, 2 rolled back) for a metric.
	say func(state float64)
	// subject is what Events about the tables are on.
	subject *corev1.ObjectReference

	mu     sync.Mutex // guards orders, past and since
	orders directory.Orders

	// obeyed are the orders that the tables follow; base, while they are frozen, is what the Compiler knows to be out.
	obeyed directory.Orders
	base   *table.Image
	// zones go with base: where it says that nodes are. inherited: the tables are an earlier leader's, and what is out is not
	// known to the Compiler; see succession.go.
	zones     []table.NodeZone
	inherited bool
	settled   func(ctx context.Context, next table.Image) bool
	// published: there are tables to serve.
	published atomic.Bool
	// past is sorted by time; since is when the present state began.
	past  []memory
	since time.Time
}

// memory is the state of all tables from a time on.
type memory struct {
	since time.Time
	image table.Image
}

// order takes the orders of now, from any goroutine.
func (o *owner) order(orders directory.Orders) {
	o.mu.Lock()
	changed := o.orders != orders
	o.orders = orders
	o.mu.Unlock()
	if changed {
		o.again()
	}
}

// await waits for the first orders: a replica that starts during a freeze has no frozen tables, and must not serve others.
func (o *owner) await(ctx context.Context) {
	timer := time.NewTimer(ordersWithin)
	defer timer.Stop()
	select {
	case <-o.known:
	case <-timer.C:
		o.logger.WarnContext(ctx, "the owner's orders cannot be read, tables follow the cluster", slog.String("configmap", directory.ConfigMapName))
	case <-ctx.Done():
	}
}

// frozen carries out new orders, and reports whether changes have to wait.
func (o *owner) frozen(ctx context.Context) bool {
	o.mu.Lock()
	orders := o.orders
	o.mu.Unlock()
	if orders == o.obeyed {
		return orders.Frozen
	}
	before := o.obeyed
	o.obeyed = orders
	switch {
	case !orders.Frozen:
		o.say(0)
		o.logger.InfoContext(ctx, "tables follow the cluster again, by the owner's order")
		return false
	case !o.published.Load():
		o.say(1)
		o.logger.WarnContext(ctx, "tables are frozen, and this replica has none to hold: it serves nobody until they are unfrozen", slog.String("reason", orders.Reason))
		return true
	case o.inherited && !before.Frozen:
		o.say(1)
		o.logger.WarnContext(ctx, "tables stay as the earlier leader left them, by the owner's order to freeze", slog.String("reason", orders.Reason))
		return true
	case !before.Frozen:
		image := o.store.Image()
		o.base = &image
	}
	if orders.RollbackTo.IsZero() {
		o.say(1)
		o.logger.WarnContext(ctx, "tables are frozen, by the owner's order", slog.String("reason", orders.Reason), slog.Uint64("revision", o.store.Revision()))
		return true
	}
	o.rollback(ctx, orders)
	return true
}

// rollback publishes what the tables were at the time that is asked for, as far as that is remembered.
func (o *owner) rollback(ctx context.Context, orders directory.Orders) {
	at := orders.RollbackTo
	o.mu.Lock()
	since, past := o.since, o.past
	o.mu.Unlock()
	if !at.Before(since) {
		o.say(1)
		if !o.inherited {
			o.store.PublishOn(*o.base, nil, nil, time.Time{}) // an earlier order may have gone further back
		}
		o.logger.WarnContext(ctx, "tables are frozen, and have not changed since the time to roll back to", slog.Time("to", at))
		return
	}
	for i := len(past) - 1; i >= 0; i-- {
		if m := past[i]; !m.since.After(at) {
			o.say(2)
			revision := o.store.PublishOn(m.image, nil, nil, time.Time{})
			o.logger.WarnContext(ctx, "tables are rolled back and frozen, by the owner's order", slog.Time("to", at), slog.Time("state_of", m.since),
				slog.Uint64("revision", revision), slog.String("reason", orders.Reason))
			return
		}
	}
	o.say(1)
	o.logger.ErrorContext(ctx, "tables are frozen, but not rolled back: this replica remembers nothing so old", slog.Time("to", at), slog.Int("memories", len(past)))
}

// change is what a round changes of the tables.
type change struct {
	updates []fwd.Update
	zones   []table.NodeZone
	cause   time.Time
}

// publish makes a revision, in place of whatever the tables were frozen at or an earlier leader left.
func (o *owner) publish(ctx context.Context, c change) (revision uint64, changed bool) {
	before := o.store.Revision()
	o.remember(time.Now())
	switch {
	case o.inherited:
		next := o.base.With(c.updates)
		o.base, o.zones = &next, append(o.zones, c.zones...)
		if !o.settled(ctx, next) {
			return before, false
		}
		revision = o.store.Succeed(next, o.zones, c.cause)
	case o.base != nil:
		revision = o.store.PublishOn(*o.base, c.updates, c.zones, c.cause)
	default:
		revision = o.store.Publish(c.updates, c.zones, c.cause)
	}
	o.base, o.zones, o.inherited = nil, nil, false
	changed = revision != before
	o.changed(changed)
	return revision, changed
}

// begin prepares for an own term, whose Compiler knows of nothing that is out.
func (o *owner) begin(settled func(ctx context.Context, next table.Image) bool) {
	o.obeyed = directory.Orders{}
	o.base, o.zones, o.inherited, o.settled = &table.Image{}, nil, true, settled
}

// changed notes that there are tables, and that a new state of them began.
func (o *owner) changed(changed bool) {
	if changed {
		o.mu.Lock()
		o.since = time.Now()
		o.mu.Unlock()
	}
	o.published.Store(true)
}

// remember keeps the present state, if it is worth it, before it changes at a time.
func (o *owner) remember(now time.Time) {
	if !o.worth(now) {
		return
	}
	image := o.store.Image()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.past) >= memories {
		o.past = append(o.past[:0:0], o.past[1:]...)
	}
	o.past = append(o.past, memory{since: o.since, image: image})
}

// worth reports whether the present state has lasted, or the one that is remembered last is old.
func (o *owner) worth(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := time.Time{}
	if n := len(o.past); n > 0 {
		last = o.past[n-1].since
	}
	return !o.since.IsZero() && !o.since.Equal(last) && (o.since.Sub(last) >= memoryPause || now.Sub(o.since) >= memoryPause)
}

// newOwner makes the owner of a controller's tables.
func newOwner(cfg Config, p *parts, metrics *pipelineMetrics) *owner {
	subject := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: cfg.LeaseNamespace, Name: directory.ConfigMapName}
	return &owner{
		store: p.store, logger: cfg.Logger, subject: subject,
		again: p.again,
		say: func(state float64) {
			metrics.frozen.Set(state)
			switch state {
			case 1:
				p.events.Warn(subject, "TablesFrozen", "forwarding tables stay as they are until fairlead-controller unfreeze")
			case 2:
				p.events.Warn(subject, "TablesRolledBack", "forwarding tables are those of an earlier time until fairlead-controller unfreeze")
			}
		},
	}
}
