package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Update is the newest verified table.
type Update struct {
	Table *fwd.Table
	// Epoch and Revision name it towards the controller.
	Epoch, Revision uint64
	// Cause is when the controller heard of the oldest change since the last Update; zero where that is not known.
	Cause time.Time
	// Touched is what differs from the table of the last Update (the empty table before the first).
	Touched fwd.Changed
}

// Source gives Updates. Changed delivers a value when Take has one.
type Source interface {
	Changed() <-chan struct{}
	Take() (u Update, ok bool)
}

// Step is work that follows every successful Sync of the dataplane. before is the table that the Step last followed with
// success, delta what differs. It is also called every Config.SyncPeriod with an empty delta, for what it wants to retry.
type Step interface {
	// Name is one lower-case word, for logs, metrics and errors.
	Name() string
	Follow(ctx context.Context, before, now *fwd.Table, delta dataplane.Delta) ([]dataplane.Notice, error)
}

// Watcher is what a dataplane.Interface may offer besides: a channel that delivers a value when somebody else has changed
// what is ours in the kernel. It is called once; the channel may be nil.
type Watcher interface {
	Watch(ctx context.Context) <-chan struct{}
}

// Health is told that a table waits for the kernel, and that the kernel holds the newest one taken.
type Health interface {
	Pending()
	Updated(node fwd.NodeFacts)
}

// Outcome is what became of a revision. It comes after the kernel's answer, never before.
type Outcome struct {
	Epoch, Revision uint64
	// Err is nil when the kernel holds the revision and every Step followed.
	Err error
	// Duration is how long the last attempt took.
	Duration time.Duration
	Notices  []dataplane.Notice
}

// Config of a Loop. All fields but Steps, Due, Inspect and Jitter are required.
type Config struct {
	Dataplane dataplane.Interface
	Source    Source
	Steps     []Step
	// Due delivers a value when Steps may have something to do that no table tells of, such as a new address of this host; nil
	// is never.
	Due <-chan struct{}
	// Inspect delivers channels, each with room for one value, that get an Inspection; nil is never.
	Inspect <-chan chan<- Inspection
	Health  Health
	// Report must not block.
	Report  func(Outcome)
	Metrics *Metrics
	Logger  *slog.Logger

	// AuditInterval is between two looks at the kernel, SyncPeriod between two calls of the Steps, ResyncInterval between
	// two Syncs that look at everything. A retry comes after a random time of at most RetryBase, doubling up to RetryMax.
	AuditInterval, SyncPeriod, ResyncInterval, RetryBase, RetryMax time.Duration
	// Jitter returns a random number in [0, n); nil is math/rand/v2.
	Jitter func(n int64) int64
}

// Loop is described at the package. Run may be called once.
type Loop struct {
	cfg    Config
	kernel stage
	steps  []*stage

	// now is what to follow; its Table is nil before the first Update, its Cause zero once it was followed.
	now Update
	// fresh: of now no Outcome was reported yet. lastErr is the error of the last one, "" for success.
	fresh   bool
	lastErr string
	auditor auditor
}

// New returns a Loop, or says what the Config lacks.
func New(cfg Config) (*Loop, error) {
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Int64N
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Loop{cfg: cfg}
	l.kernel = newStage("dataplane", l.sync)
	l.kernel.wholeAfterFailure = true
	for _, step := range cfg.Steps {
		s := newStage(step.Name(), step.Follow)
		l.steps = append(l.steps, &s)
	}
	return l, nil
}

func (c Config) validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"Dataplane", c.Dataplane != nil},
		{"Source", c.Source != nil},
		{"Health", c.Health != nil},
		{"Report", c.Report != nil},
		{"Metrics", c.Metrics != nil},
		{"Logger", c.Logger != nil},
		{"AuditInterval", c.AuditInterval > 0},
		{"SyncPeriod", c.SyncPeriod > 0},
		{"ResyncInterval", c.ResyncInterval > 0},
		{"RetryBase", c.RetryBase > 0},
		{"RetryMax", c.RetryMax > 0},
	} {
		if !f.given {
			errs = append(errs, fmt.Errorf("proxy config: %s is required", f.name))
		}
	}
	return errors.Join(errs...)
}

// Run follows the Source until ctx ends, and then leaves the kernel as it is.
func (l *Loop) Run(ctx context.Context) {
	foreign, due := l.watch(ctx), l.cfg.Due
	retry := time.NewTimer(l.cfg.RetryMax)
	l.auditor.timer = time.NewTimer(l.cfg.AuditInterval)
	l.auditor.set(l.cfg.AuditInterval)
	period, resync := time.NewTicker(l.cfg.SyncPeriod), time.NewTicker(l.cfg.ResyncInterval)
	defer l.endComparison()
	defer l.auditor.timer.Stop()
	defer retry.Stop()
	defer period.Stop()
	defer resync.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changes():
			l.take()
		case <-retry.C:
		case <-period.C:
			l.stepsDue()
		case _, open := <-due:
			if !open {
				due = nil
			}
			l.stepsDue()
		case <-resync.C:
			l.kernel.pending.All = true
		case _, open := <-foreign:
			if !open {
				foreign = nil
			}
			l.auditor.hurry()
			continue
		case answer := <-l.inspections():
			l.inspect(ctx, answer)
		case <-l.auditor.timer.C:
			l.audit(ctx)
		case <-l.auditor.starved():
			l.auditor.quiet()
			continue
		case err := <-l.auditor.progress():
			l.compared(ctx, err)
		}
		l.pass(ctx)
		retry.Reset(l.untilRetry())
	}
}

func (l *Loop) stepsDue() {
	for _, s := range l.steps {
		s.due = true
	}
}

func (l *Loop) watch(ctx context.Context) <-chan struct{} {
	if w, ok := l.cfg.Dataplane.(Watcher); ok {
		return w.Watch(ctx)
	}
	return nil
}

// take makes the newest table the one to follow.
func (l *Loop) take() {
	u, ok := l.cfg.Source.Take()
	if !ok {
		return
	}
	u.Cause = oldest(l.now.Cause, u.Cause)
	l.now, l.fresh = u, true
	l.kernel.note(u.Touched)
	for _, s := range l.steps {
		s.note(u.Touched)
	}
	if l.kernel.dirty() {
		l.cfg.Health.Pending()
		l.cfg.Metrics.lastQueued.SetToCurrentTime()
	} else {
		l.now.Cause = time.Time{} // nothing to program, nothing to time
	}
}

func oldest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// pass does what is to be done and not in back-off: the kernel first, the Steps when it holds the newest table, then the
// report.
func (l *Loop) pass(ctx context.Context) {
	if l.now.Table == nil {
		return
	}
	started, tried := time.Now(), false
	var notices []dataplane.Notice
	if l.kernel.ready(started) {
		notices, tried = l.run(ctx, &l.kernel), true
		if l.kernel.err == nil {
			l.followed()
		} else {
			l.cfg.Health.Pending() // a repair that fails waits as well
		}
	}
	if l.kernel.dirty() && !tried {
		return // in back-off: its failure is reported, this table is not tried yet
	}
	for _, s := range l.steps {
		if !l.kernel.dirty() && s.ready(started) {
			notices, tried = append(notices, l.run(ctx, s)...), true
		}
	}
	if ctx.Err() == nil && (tried || l.fresh) {
		l.report(Outcome{
			Epoch: l.now.Epoch, Revision: l.now.Revision, Err: l.failure(), Duration: time.Since(started), Notices: notices,
		})
	}
}

// followed says that the kernel holds the newest table.
func (l *Loop) followed() {
	l.cfg.Health.Updated(l.now.Table.Node())
	if !l.now.Cause.IsZero() {
		l.cfg.Metrics.programming.Observe(time.Since(l.now.Cause).Seconds())
		l.now.Cause = time.Time{}
	}
}

// failure joins what keeps the newest table from being in force.
func (l *Loop) failure() error {
	if l.kernel.err != nil {
		return fmt.Errorf("%s: %w", l.kernel.name, l.kernel.err)
	}
	var errs []error
	for _, s := range l.steps {
		if s.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.name, s.err))
		}
	}
	return errors.Join(errs...)
}

// report passes an Outcome on, unless it says again what was said.
func (l *Loop) report(o Outcome) {
	text := ""
	if o.Err != nil {
		text = o.Err.Error()
	}
	if o.Err == nil {
		l.cfg.Metrics.applied.Set(float64(o.Revision))
	}
	for _, n := range o.Notices {
		l.cfg.Metrics.notices.WithLabelValues(n.Reason).Inc()
	}
	if l.fresh || text != l.lastErr || len(o.Notices) > 0 {
		l.fresh, l.lastErr = false, text
		l.cfg.Report(o)
	}
}

// untilRetry is the time until the first stage's back-off ends.
func (l *Loop) untilRetry() time.Duration {
	if l.kernel.err != nil {
		return max(0, time.Until(l.kernel.next)) // the Steps wait for it
	}
	wait := l.cfg.RetryMax
	for _, s := range l.steps {
		if s.err != nil {
			wait = min(wait, max(0, time.Until(s.next)))
		}
	}
	return wait
}
