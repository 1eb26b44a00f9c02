package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
)

// Times and numbers of audits.
const (
	// foreignSettles is between the first sign of somebody else's change and the audit.
	foreignSettles = 200 * time.Millisecond
	// auditRest is how many times as long as an audit took the next one waits at least: audits take a quarter of the time of
	// one core at most, however long the ruleset.
	auditRest = 3
	// patience is how long an audit that starves goes without; then changes wait until it has read, for auditHold at most.
	patience, auditHold = 10 * time.Second, 2 * time.Second
	// namedDifferences is how many of them a log line names.
	namedDifferences = 5
)

// auditor is what the loop knows of its comparisons with the kernel, of which one at most is on its way. Reading takes
// seconds at many Services, so that it happens beside the loop, which goes on with changes; the rest is quick.
type auditor struct {
	// timer is for the next audit, and at is what it is set to; rested is when there may be one at the earliest.
	timer      *time.Timer
	at, rested time.Time
	// foreign: somebody else has changed the kernel since the comparison on its way began.
	foreign bool
	current *comparison
}

// comparison is one that is on its way.
type comparison struct {
	dataplane.Audit
	began  time.Time
	giveUp context.CancelFunc
	// read delivers what became of the reading.
	read chan error
	// void: a Sync of everything has begun since, so that what was read says nothing.
	void bool
	// starved fires when patience ends, and again when changes have waited for long enough, which they do while held is true.
	starved *time.Timer
	held    bool
	// answer is where an Inspection goes; nil for an audit, which repairs.
	answer chan<- Inspection
	// of names the table.
	of Inspection
}

// progress delivers when the comparison on its way has read the kernel; nil where there is none.
func (a *auditor) progress() <-chan error {
	if a.current == nil {
		return nil
	}
	return a.current.read
}

// starved delivers when patience with the comparison on its way ends, which is never for those that read under changes too.
func (a *auditor) starved() <-chan time.Time {
	if a.current == nil || a.current.starved == nil {
		return nil
	}
	return a.current.starved.C
}

// quiet lets a comparison that starves have the kernel for a moment, and gives it up when that was not enough.
func (a *auditor) quiet() {
	if c := a.current; c.held {
		c.held, c.void = false, true
		c.giveUp()
	} else {
		c.held = true
		c.starved.Reset(auditHold)
	}
}

// hurry brings the next audit forward, upon a sign of somebody else's change. What follows at once, such as the rest of a
// firewall's reload, is seen by the same audit; what never ends does not put it off.
func (a *auditor) hurry() {
	if a.current != nil {
		a.foreign = true
	} else if wait := max(foreignSettles, time.Until(a.rested)); time.Now().Add(wait).Before(a.at) {
		a.set(wait)
	}
}

func (a *auditor) set(d time.Duration) {
	a.at = time.Now().Add(d)
	a.timer.Reset(d)
}

// changes delivers when there is a new table to take.
func (l *Loop) changes() <-chan struct{} {
	if c := l.auditor.current; c != nil && c.held {
		return nil
	}
	return l.cfg.Source.Changed()
}

// audit begins an audit, unless nothing is known to be right, or there is nothing to read.
func (l *Loop) audit(ctx context.Context) {
	l.auditor.set(l.cfg.AuditInterval)
	if l.now.Table == nil || l.kernel.dirty() || l.auditor.current != nil {
		return
	}
	if !l.compare(ctx, nil) {
		l.cfg.Metrics.audits.Inc()
	}
}

// compare begins a comparison, and reports whether there is anything to read.
func (l *Loop) compare(ctx context.Context, answer chan<- Inspection) bool {
	began := time.Now()
	a := l.cfg.Dataplane.Audit()
	if a == nil {
		return false
	}
	reading, giveUp := context.WithCancel(ctx)
	c := &comparison{
		Audit: a, began: began, giveUp: giveUp, read: make(chan error, 1), answer: answer,
		of: Inspection{Epoch: l.now.Epoch, Revision: l.now.Revision},
	}
	if s, ok := a.(dataplane.Starving); ok && s.Starves() {
		c.starved = time.NewTimer(patience)
	}
	l.auditor.current, l.auditor.foreign = c, false
	go func() { c.read <- a.Read(reading) }()
	return true
}

// compared ends the comparison on its way, whose reading has ended.
func (l *Loop) compared(ctx context.Context, err error) {
	c := l.auditor.current
	c.giveUp()
	if c.starved != nil {
		c.starved.Stop()
	}
	l.auditor.current = nil
	rest := auditRest * time.Since(c.began)
	l.auditor.rested = time.Now().Add(rest)
	l.auditor.set(max(l.cfg.AuditInterval, rest))
	if l.auditor.foreign {
		l.auditor.hurry()
	}
	c.void = c.void || ctx.Err() != nil
	var differences []dataplane.Difference
	switch {
	case c.void:
		err = nil // it was given up, which is no failure
	case err == nil:
		differences = c.Differences()
	}
	if c.answer != nil {
		c.of.Differences, c.of.Interrupted, c.of.Err = differences, c.void, err
		c.answer <- c.of
	} else if !c.void {
		l.judge(differences, err)
	}
}

// judge asks for a Sync of everything where an audit has found differences.
func (l *Loop) judge(differences []dataplane.Difference, err error) {
	l.cfg.Metrics.audits.Inc()
	switch {
	case err != nil:
		l.cfg.Metrics.failures.WithLabelValues("audit").Inc()
		l.cfg.Logger.Warn("audit failed", slog.Any("error", err))
	case len(differences) > 0:
		l.cfg.Metrics.repairs.Inc()
		l.cfg.Metrics.differences.Add(float64(len(differences)))
		l.cfg.Logger.Warn("kernel differs from the table and is repaired",
			slog.Int("differences", len(differences)), slog.String("first", name(differences)))
		l.kernel.pending.All = true
	}
}

// voidComparison says that the kernel is being written as a whole, or is in a state that nobody knows.
func (l *Loop) voidComparison() {
	if c := l.auditor.current; c != nil {
		c.void = true
		c.giveUp()
	}
}

// endComparison gives up the one on its way and waits for its end.
func (l *Loop) endComparison() {
	if c := l.auditor.current; c != nil {
		c.giveUp()
		l.cfg.Logger.Debug("audit given up", slog.Any("error", <-c.read))
		if c.answer != nil {
			c.of.Interrupted = true
			c.answer <- c.of
		}
	}
}

// name lists the first differences for people.
func name(differences []dataplane.Difference) string {
	var names []string
	for d := range slices.Values(differences[:min(namedDifferences, len(differences))]) {
		names = append(names, fmt.Sprintf("%s %s", d.Object, d.Problem))
	}
	return strings.Join(names, ", ")
}
