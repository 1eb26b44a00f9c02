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
	// secondLook is between an audit that was given up for a new table and the next one.
	secondLook = time.Second
	// auditRest is how many times as long as the last full audit took another one may be put off by new tables: audits that
	// nothing ends take one part in auditRest of the loop's time at most. In iptables mode one takes seconds at 10,000 Services.
	auditRest = 20
	// namedDifferences is how many of them a log line names.
	namedDifferences = 5
)

// audit looks at the kernel and, where it differs, asks for a Sync of everything. It returns when to look again. An audit
// can take longer than a change should wait, so that a new table ends it; now and then none does, since a kernel that is
// always about to change is audited too.
func (l *Loop) audit(ctx context.Context) time.Duration {
	if l.now.Table == nil || l.kernel.dirty() {
		return l.cfg.AuditInterval // nothing is known to be right
	}
	began := time.Now()
	differences, finished, err := l.look(ctx)
	if !finished {
		l.impatient = began.Sub(l.audited) >= auditRest*l.auditTook
		return min(secondLook, l.cfg.AuditInterval)
	}
	l.audited, l.auditTook, l.impatient = time.Now(), time.Since(began), false
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
	return l.cfg.AuditInterval
}

// look runs one Audit; finished is false when it was given up.
func (l *Loop) look(ctx context.Context) (differences []dataplane.Difference, finished bool, err error) {
	if l.impatient {
		differences, err = l.cfg.Dataplane.Audit(ctx)
		return differences, ctx.Err() == nil, err //nolint:wrapcheck // logged by the caller
	}
	looking, giveUp := context.WithCancel(ctx)
	ended, watched := make(chan struct{}), make(chan bool)
	go func() {
		select {
		case <-l.cfg.Source.Changed():
			giveUp()
			watched <- true
		case <-ended:
			watched <- false
		}
	}()
	differences, err = l.cfg.Dataplane.Audit(looking)
	close(ended)
	changed := <-watched
	giveUp()
	if changed {
		l.take() // its signal is spent
	}
	return differences, (!changed || err == nil) && ctx.Err() == nil, err //nolint:wrapcheck // logged by the caller
}

// name lists the first differences for people.
func name(differences []dataplane.Difference) string {
	var names []string
	for d := range slices.Values(differences[:min(namedDifferences, len(differences))]) {
		names = append(names, fmt.Sprintf("%s %s", d.Object, d.Problem))
	}
	return strings.Join(names, ", ")
}
