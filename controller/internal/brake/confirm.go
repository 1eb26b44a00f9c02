package brake

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pauses between two fresh lists: they are as expensive as a start.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// Run makes fresh lists, as long as something waits for one, until ctx ends.
func (b *Brake) Run(ctx context.Context) {
	pause := firstPause
	for {
		select {
		case <-b.ask:
		case <-ctx.Done():
			return
		}
		start := time.Now()
		fresh, err := b.cfg.Fresh(ctx)
		if err != nil && ctx.Err() == nil {
			b.cfg.Logger.WarnContext(ctx, "cannot list anew, what is held stays held", slog.Any("err", err))
			b.wake()
		}
		if err == nil {
			b.mu.Lock()
			b.fresh = fresh
			waiting := b.waiting
			b.mu.Unlock()
			b.cfg.Logger.InfoContext(ctx, "listed everything anew", slog.Duration("took", time.Since(start)), slog.Int("services_held", len(waiting)))
			b.cfg.Again(waiting...)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if pause = min(2*pause, lastPause); !b.waits() {
			pause = firstPause
		}
	}
}

// wake has Run make a list.
func (b *Brake) wake() {
	select {
	case b.ask <- struct{}{}:
	default:
	}
}

func (b *Brake) waits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0
}

// takeFresh returns the list that was made for the Services of this round; nil is none.
func (b *Brake) takeFresh() Lookup {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh := b.fresh
	concerned := func(key types.NamespacedName) bool { return b.pending[key] != nil }
	if fresh == nil || !slices.ContainsFunc(b.waiting, concerned) {
		return nil
	}
	b.fresh = nil
	return fresh
}

// tell reports what is held if that has changed, and asks for a list if there is anything.
func (b *Brake) tell(ctx context.Context) {
	waiting := slices.SortedFunc(maps.Keys(b.held), func(x, y types.NamespacedName) int { return strings.Compare(x.String(), y.String()) })
	b.mu.Lock()
	b.waiting = waiting
	b.mu.Unlock()
	if len(waiting) > 0 {
		b.wake()
	}
	now := tally{endpoints: b.heldEndpoints, services: len(waiting)}
	for _, key := range waiting {
		if b.applied[key].gone {
			now.gone++
		}
	}
	if now == b.told {
		return
	}
	b.told = now
	b.cfg.Held(now.endpoints, now.gone)
	if len(waiting) == 0 {
		b.cfg.Logger.InfoContext(ctx, "nothing is held any more", slog.Int("endpoints", b.total), slog.Int("services", len(b.applied)))
	}
}
