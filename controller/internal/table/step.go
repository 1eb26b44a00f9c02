package table

import (
	"fmt"
	"time"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// Step is a revision that another author made, for all audiences.
type Step struct {
	Epoch, Number uint64
	// Cause is when the oldest change in it was heard of; the zero time is unknown.
	Cause time.Time
	// Whole: audiences that Changes does not name are empty now.
	Whole bool
	// Changes apply to the present parts; nil is no change.
	Changes map[fwd.Audience]*fwd.PartChange
}

// Append adds the next message of the same revision. It fails with fwd.ErrMalformed.
func (s *Step) Append(r *fairleadv1.Revision) error {
	if s.Changes == nil {
		s.Number, s.Whole, s.Changes = r.GetNumber(), r.GetWhole(), map[fwd.Audience]*fwd.PartChange{}
		if at := r.GetCauseUnixMicros(); at != 0 {
			s.Cause = time.UnixMicro(int64(at)) //nolint:gosec // a time of ours
		}
	}
	if r.GetNumber() != s.Number || r.GetWhole() != s.Whole {
		return fmt.Errorf("%w: revision %d in the middle of %d", fwd.ErrMalformed, r.GetNumber(), s.Number)
	}
	for _, m := range r.GetAudiences() {
		audience, part, err := readAudience(m)
		if err != nil {
			return err
		}
		change := fwd.PartChangeFromProto(part)
		switch before := s.Changes[audience]; {
		case change == nil || before == nil:
			s.Changes[audience] = change
		default:
			before.Append(change)
		}
	}
	return nil
}

func readAudience(m *fairleadv1.Audience) (fwd.Audience, *fairleadv1.Part, error) {
	var audience fwd.Audience
	var part *fairleadv1.Part
	n := 0
	for scope, p := range []*fairleadv1.Part{m.GetCommon(), m.GetZone(), m.GetNode(), m.GetReplica()} {
		if p != nil {
			audience.Scope, part = fwd.Scope(scope), p //nolint:gosec // 0 to 3
			n++
		}
	}
	audience.Name = m.GetName()
	if n > 1 || n == 0 && m.GetName() != "" {
		return audience, nil, fmt.Errorf("%w: audience %q has %d parts: want one", fwd.ErrMalformed, m.GetName(), n)
	}
	return audience, part, nil
}
