package mirror

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/controller/internal/table"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// session is the state of one stream. One goroutine uses it.
type session struct {
	mirror *Mirror
	leader string
	to     sender

	// epoch and patience (how long silence may last) come with the Welcome; patience is 0 before.
	epoch    uint64
	patience time.Duration
	// step are the messages so far of a revision; nil between revisions. complete: there was one.
	step     *table.Step
	complete bool
	// asked: the leader has asked its question.
	asked bool
}

// sender takes what a replica says after its hello: one goroutine speaks.
type sender interface {
	Send(*fairleadv1.FollowRequest) error
}

// Bounds of the heartbeat interval that a leader may announce.
const (
	minHeartbeat = time.Millisecond
	maxHeartbeat = 10 * time.Minute
)

// handle takes one message; an error ends the stream.
func (s *session) handle(m *fairleadv1.FollowResponse) error {
	welcome := m.GetWelcome()
	if (welcome == nil) != (s.patience > 0) {
		return fmt.Errorf("%w: the welcome comes once and first", fwd.ErrMalformed)
	}
	switch {
	case welcome != nil:
		return s.welcome(welcome)
	case m.GetRevision() != nil:
		return s.revision(m.GetRevision())
	case m.GetHeartbeat() != nil:
		return s.heartbeat(m.GetHeartbeat())
	case m.GetQuestion() != nil:
		return s.question(m.GetQuestion())
	}
	return nil // of a later version
}

func (s *session) welcome(w *fairleadv1.Welcome) error {
	interval := time.Duration(w.GetHeartbeatIntervalMs()) * time.Millisecond
	if interval < minHeartbeat || interval > maxHeartbeat {
		return fmt.Errorf("%w: heartbeat interval %v", fwd.ErrMalformed, interval)
	}
	s.epoch, s.patience = w.GetEpoch(), silentBeats*interval
	return s.fence(w.GetEpoch())
}

// fence refuses an older epoch: it would not be adopted anyway.
func (s *session) fence(epoch uint64) error {
	if now := s.mirror.cfg.Store.Epoch(); epoch < now {
		return fmt.Errorf("epoch %d: %w: %d", epoch, table.ErrFenced, now)
	}
	return nil
}

// question answers with the digests of the common part's buckets, whoever else was asked about.
func (s *session) question(q *fairleadv1.Question) error {
	if s.asked || s.complete || s.step != nil {
		return fmt.Errorf("%w: the question comes once, before the first revision", fwd.ErrMalformed)
	}
	s.asked = true
	answer, err := s.mirror.cfg.Store.Answer(q)
	if err != nil {
		return err
	}
	if err := s.to.Send(&fairleadv1.FollowRequest{Message: &fairleadv1.FollowRequest_Answer{Answer: answer}}); err != nil {
		return fmt.Errorf("send answer: %w", err)
	}
	return nil
}

func (s *session) revision(r *fairleadv1.Revision) error {
	if s.step == nil {
		s.step = &table.Step{Epoch: s.epoch}
	}
	if err := s.step.Append(r); err != nil {
		return err
	}
	if r.GetMore() {
		return nil
	}
	step := *s.step
	s.step = nil
	if step.Whole == s.complete {
		return fmt.Errorf("%w: revision %d: the first one is whole, and no other", fwd.ErrMalformed, step.Number)
	}
	m := s.mirror
	if err := m.cfg.Store.Adopt(step); err != nil {
		return err
	}
	if !s.complete {
		s.complete, m.forget, m.said = true, false, ""
		m.cfg.Logger.Info("following the leader", slog.String("leader", s.leader), slog.Uint64("epoch", s.epoch), slog.Uint64("revision", step.Number))
	}
	return nil
}

// heartbeat compares digests, between revisions.
func (s *session) heartbeat(h *fairleadv1.Heartbeat) error {
	if epoch := h.GetEpoch(); epoch != 0 {
		if err := s.fence(epoch); err != nil {
			return err
		}
		s.epoch = epoch
	}
	if !s.complete || s.step != nil {
		return nil
	}
	if have := s.mirror.cfg.Store.Digest(); have != h.GetDigest() {
		return fmt.Errorf("heartbeat %d: %w: have %016x, want %016x", h.GetNumber(), fwd.ErrDigest, have, h.GetDigest())
	}
	return nil
}
