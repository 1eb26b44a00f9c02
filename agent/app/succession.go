package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/proxy"
	"github.com/fairlead/fairlead/proto/fwd"
)

// succession is the Step that takes away what other modes have left on this host, once the chosen one has its rules in
// place: from then on new connections take those. What old connections need stays for them, and is looked at again every
// sync period. Each start begins anew, so that a change which was interrupted is completed.
type succession struct {
	former []mode
	host   hostFacts
	// waiting is how many things of each former mode wait for the end of their connections.
	waiting map[string]int
	failed  bool
}

var _ proxy.Step = (*succession)(nil)

// newSuccession is that of a mode after all others.
func newSuccession(to mode, h hostFacts) *succession {
	s := &succession{host: h, waiting: map[string]int{}}
	for _, m := range modes() {
		if m.name != to.name {
			s.former = append(s.former, m)
		}
	}
	return s
}

// Name implements proxy.Step.
func (*succession) Name() string { return "succession" }

// Follow implements proxy.Step. Changes of the table do not concern it.
func (s *succession) Follow(ctx context.Context, _, _ *fwd.Table, delta dataplane.Delta) ([]dataplane.Notice, error) {
	if !delta.All && !delta.Empty() && !s.failed {
		return nil, nil
	}
	var still []mode
	var errs []error
	for _, m := range s.former {
		waiting, err := m.retire(ctx, s.host)
		if err != nil {
			errs = append(errs, fmt.Errorf("clean up %s mode: %w", m.name, err))
		}
		if waiting > 0 || err != nil {
			still = append(still, m)
		}
		s.tell(ctx, m.name, waiting)
	}
	s.former, s.failed = still, len(errs) > 0
	return nil, errors.Join(errs...)
}

// tell says how it goes, where there is news.
func (s *succession) tell(ctx context.Context, mode string, waiting int) {
	switch waiting {
	case s.waiting[mode]:
	case 0:
		s.host.logger.InfoContext(ctx, "the former mode's connections have ended, nothing of it is left", slog.String("former", mode))
	default:
		s.host.logger.InfoContext(ctx, "the former mode's connections live on, what they need stays", slog.String("former", mode), slog.Int("virtual_servers", waiting))
	}
	s.waiting[mode] = waiting
}

// cleanAll removes what any mode has made on this host. It fails where it could not look: who asks for a clean host has to
// know.
func cleanAll(ctx context.Context, h hostFacts) error {
	var errs []error
	for _, m := range modes() {
		if err := m.remove(ctx, h); err != nil {
			errs = append(errs, fmt.Errorf("clean up %s mode: %w", m.name, err))
		}
	}
	return errors.Join(errs...)
}
