package proxy

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// follow does one stage's work.
type follow func(ctx context.Context, before, now *fwd.Table, delta dataplane.Delta) ([]dataplane.Notice, error)

// stage is one thing that follows the tables, and what it holds.
type stage struct {
	name   string
	follow follow
	// wholeAfterFailure: a failed attempt leaves nobody knows what, so that the next one looks at everything.
	wholeAfterFailure bool

	// before is the table that was last followed with success, pending what may differ from it. due asks for a call even
	// without a difference.
	before  *fwd.Table
	pending dataplane.Delta
	due     bool

	// err is that of the last attempt; failures counts those in a row, and next is when another may be made.
	err      error
	failures int
	next     time.Time
}

func newStage(name string, f follow) stage {
	return stage{name: name, follow: f, before: &fwd.Table{}, pending: dataplane.Delta{All: true}}
}

func (s *stage) note(touched fwd.Changed) { s.pending.Changed = s.pending.Union(touched) }

// dirty reports whether the stage may hold something else than the newest table.
func (s *stage) dirty() bool { return s.pending.All || !s.pending.Empty() }

// ready reports whether there is something to do and no back-off to wait for.
func (s *stage) ready(at time.Time) bool {
	return (s.dirty() || s.due || s.err != nil) && !at.Before(s.next)
}

// run makes one attempt at one stage. This is the only place where what is held moves, and it moves after success alone.
func (l *Loop) run(ctx context.Context, s *stage) []dataplane.Notice {
	delta := s.pending
	notices, err := s.follow(ctx, s.before, l.now.Table, delta)
	s.due = false
	if err != nil {
		l.failed(ctx, s, err)
		return notices
	}
	if s.err != nil {
		l.cfg.Logger.Info("programming works again", slog.String("stage", s.name), slog.Int("failures", s.failures))
	}
	s.before, s.pending = l.now.Table, dataplane.Delta{}
	s.err, s.failures, s.next = nil, 0, time.Time{}
	return notices
}

// failed keeps what is to be done and begins a back-off with full jitter. A failure that stays the same is logged once.
func (l *Loop) failed(ctx context.Context, s *stage, err error) {
	if ctx.Err() != nil {
		return // the agent is stopping, which fails whatever runs
	}
	if s.err == nil || s.err.Error() != err.Error() {
		l.cfg.Logger.Error("programming failed", slog.String("stage", s.name), slog.Any("error", err))
	}
	l.cfg.Metrics.failures.WithLabelValues(s.name).Inc()
	bound := l.cfg.RetryMax
	if s.failures < 16 { // enough to double any base beyond any bound
		bound = min(bound, l.cfg.RetryBase<<s.failures)
	}
	s.err, s.failures = err, s.failures+1
	s.next = time.Now().Add(time.Duration(l.cfg.Jitter(int64(bound))) + time.Nanosecond)
	s.pending.All = s.pending.All || s.wholeAfterFailure
}

// sync is what the kernel's stage does.
func (l *Loop) sync(ctx context.Context, before, now *fwd.Table, delta dataplane.Delta) ([]dataplane.Notice, error) {
	started := time.Now()
	if delta.All {
		l.voidComparison()
	}
	report, err := l.cfg.Dataplane.Sync(ctx, before, now, delta)
	took := time.Since(started)
	l.cfg.Metrics.synced(took, delta.All)
	if err != nil {
		l.voidComparison()
		return nil, err //nolint:wrapcheck // the caller names the stage
	}
	l.cfg.Metrics.lastSync.SetToCurrentTime()
	l.cfg.Metrics.writes.Add(float64(report.Writes))
	level := slog.LevelDebug
	if delta.All && report.Writes > 0 {
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{
		slog.Uint64("revision", l.now.Revision), slog.Int("service_ports", len(delta.Ports)), slog.Bool("all", delta.All),
		slog.Int("writes", report.Writes), slog.Duration("took", took),
	}
	if !l.now.Cause.IsZero() {
		attrs = append(attrs, slog.Time("cause", l.now.Cause))
	}
	l.cfg.Logger.LogAttrs(ctx, level, "kernel programmed", attrs...)
	return report.Notices, nil
}
