package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/controller/internal/table"
)

// succession compares the first tables of a term with those that an earlier leader left. What it held back must not go because
// another one leads, nor what a cache lacks that was filled a moment ago: if more would go than the brake allows, it stays
// until a fresh list confirms it.
type succession struct {
	cfg   Config
	store *table.Store
	// list makes all tables from a fresh list, again has the next round come.
	list  func(ctx context.Context) (table.Image, error)
	again func()
	// next is the earliest time for another list.
	next  time.Time
	pause time.Duration
}

// The pauses between two fresh lists that do not confirm what would go.
const (
	minListPause = time.Second
	maxListPause = time.Minute
)

// settled reports whether next may take the place of the tables that are out.
func (s *succession) settled(ctx context.Context, next table.Image) bool {
	lost := s.store.Lost(next)
	if s.cfg.Brake.Share >= 1 || !s.tooMany(lost.Backends, lost.OfBackends) && !s.tooMany(lost.Ports, lost.OfPorts) {
		return true
	}
	if time.Now().Before(s.next) {
		return false
	}
	fresh, err := s.list(ctx)
	if err == nil && lost.In(fresh) == 0 {
		s.cfg.Logger.WarnContext(ctx, "much has gone since the earlier leader, and a fresh list confirms it",
			slog.Int("backends", lost.Backends), slog.Int("ports", lost.Ports))
		return true
	}
	s.pause = min(maxListPause, max(minListPause, 2*s.pause))
	s.next = time.Now().Add(s.pause)
	time.AfterFunc(s.pause, s.again)
	s.cfg.Logger.ErrorContext(ctx, "much would go that the earlier leader had, and no fresh list confirms it: tables stay as they are",
		slog.Int("backends", lost.Backends), slog.Int("of_backends", lost.OfBackends), slog.Int("ports", lost.Ports), slog.Int("of_ports", lost.OfPorts),
		slog.Int("there", lost.In(fresh)), slog.Any("err", err))
	return false
}

func (s *succession) tooMany(lost, of int) bool {
	return float64(lost) > max(float64(s.cfg.Brake.Floor), s.cfg.Brake.Share*float64(of))
}
