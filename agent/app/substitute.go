package app

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/proxy"
	"github.com/fairlead/fairlead/proto/fwd"
)

// sayAgain is between two notices of one lasting fact: Events live for an hour in most clusters, and a controller may not have
// heard the first one.
const sayAgain = 10 * time.Minute

// substitute is the Step that tells whoever looks at the Node that it forwards in another mode than was asked for.
type substitute struct {
	requested, effective string
	now                  func() time.Time
	said                 time.Time
}

var _ proxy.Step = (*substitute)(nil)

func newSubstitute(requested, effective string) *substitute {
	return &substitute{requested: requested, effective: effective, now: time.Now}
}

// Name implements proxy.Step.
func (*substitute) Name() string { return "substitute" }

// Follow implements proxy.Step.
func (s *substitute) Follow(context.Context, *fwd.Table, *fwd.Table, dataplane.Delta) ([]dataplane.Notice, error) {
	now := s.now()
	if s.requested == modeAuto || s.requested == s.effective || now.Sub(s.said) < sayAgain {
		return nil, nil
	}
	s.said = now
	return []dataplane.Notice{{
		Reason:  "ModeUnavailable",
		Message: "the host cannot do " + s.requested + " mode, which --mode asks for: it forwards in " + s.effective + " mode; the agent's log says what it lacks",
	}}, nil
}
