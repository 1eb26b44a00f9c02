package client

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
	"github.com/fairlead/fairlead/proto/fwd"
)

// stream is what a session hears.
type stream interface {
	Recv() (*fairleadv1.FollowResponse, error)
}

// Bounds of the heartbeat interval that a controller may announce; silentBeats of them without a message end a stream.
const (
	minHeartbeat = time.Millisecond
	maxHeartbeat = 10 * time.Minute
	silentBeats  = 3
)

// session is the state of one stream. One goroutine uses it.
type session struct {
	client  *Client
	stream  stream
	address string

	// epoch and patience (how long silence may last) come with the Welcome; patience is 0 before.
	epoch    uint64
	patience time.Duration
	// table is what the controller's differences are relative to: the store's, or nothing where it was told of none.
	table *fwd.Table
	// fromNothing: the controller was told of no table.
	fromNothing bool
	// number is that of the last revision; verified says that there was one.
	number   uint64
	verified bool
	// asked: the controller has asked for digests of buckets.
	asked  bool
	pieces pieces
}

// pieces are the messages so far of a revision that is not complete.
type pieces struct {
	open          bool
	number, cause uint64
	change        fwd.Change
	bytes, rows   int
}

func (c *Client) newSession(s stream, address string) *session {
	held, ok := c.cfg.Store.Current()
	run := &session{client: c, stream: s, address: address, table: &fwd.Table{}, fromNothing: true}
	if ok && !c.forget {
		run.table, run.fromNothing = held.Table, false
	}
	return run
}

// hello says who asks and what is held.
func (s *session) hello() *fairleadv1.Hello {
	cfg := s.client.cfg
	h := &fairleadv1.Hello{
		Role: fairleadv1.Hello_ROLE_AGENT, Node: cfg.Node, Version: cfg.Version, Mode: cfg.Mode, Capabilities: cfg.Capabilities,
	}
	if held, ok := cfg.Store.Current(); ok && !s.fromNothing {
		h.Held = &fairleadv1.Held{
			Epoch: held.Epoch, Revision: held.Revision, CommonDigest: s.table.Part(fwd.Common).Digest(),
			ZoneDigest: s.table.Part(fwd.Zone).Digest(), NodeDigest: s.table.Part(fwd.Node).Digest(), Buckets: true,
		}
	}
	return h
}

// handle takes one message. An error ends the stream; it wraps fwd.ErrDigest or fwd.ErrMalformed.
func (s *session) handle(m *fairleadv1.FollowResponse) error {
	welcome := m.GetWelcome()
	if (welcome == nil) != (s.patience > 0) {
		return malformed("message: the welcome comes once and first")
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
		return malformed("welcome.heartbeat_interval_ms: %v: want %v to %v", interval, minHeartbeat, maxHeartbeat)
	}
	if err := s.client.fence(w.GetEpoch()); err != nil {
		return err
	}
	s.epoch, s.patience = w.GetEpoch(), silentBeats*interval
	s.client.outbox.open(s.epoch)
	s.client.welcomed(s.address, w)
	return nil
}

// question answers with the digests of buckets of what the controller was told of.
func (s *session) question(q *fairleadv1.Question) error {
	if s.asked || s.verified || s.pieces.open {
		return malformed("question: it comes once, before the first revision")
	}
	s.asked = true
	answer, err := s.table.Answer(q)
	if err != nil {
		return err
	}
	s.client.outbox.reply(answer)
	return nil
}

// revision collects the pieces of a revision, and applies it when it is complete.
func (s *session) revision(r *fairleadv1.Revision) error {
	p := &s.pieces
	switch {
	case p.open && r.GetNumber() != p.number:
		return malformed("revision.number: %d in the middle of %d", r.GetNumber(), p.number)
	case r.GetNumber() < s.number:
		return malformed("revision.number: %d after %d", r.GetNumber(), s.number)
	case !p.open:
		*p = pieces{open: true, number: r.GetNumber(), cause: r.GetCauseUnixMicros()}
	}
	limits := s.client.cfg.Limits
	p.bytes += proto.Size(r)
	for _, part := range []*fairleadv1.Part{r.GetCommon(), r.GetZone(), r.GetNode()} {
		p.rows += len(part.GetPut()) + len(part.GetRemove()) + len(part.GetReplaceBuckets())
	}
	if p.bytes > limits.RevisionBytes || p.rows > 2*limits.Rows { // all of a table can go while as much comes
		return malformed("revision: %d rows, %d bytes: want at most %d rows, %d bytes", p.rows, p.bytes, 2*limits.Rows, limits.RevisionBytes)
	}
	p.change.Append(fwd.ChangeFromProto(r))
	if r.GetMore() {
		return nil
	}
	complete := *p
	*p = pieces{}
	return s.apply(complete)
}

// apply verifies a revision and hands the table on.
func (s *session) apply(p pieces) error {
	next, touched, err := s.table.Apply(p.change)
	if err != nil {
		return fmt.Errorf("revision %d: %w", p.number, err)
	}
	if limit := s.client.cfg.Limits.Rows; next.Len() > limit {
		return malformed("revision %d: table of %d rows: want at most %d", p.number, next.Len(), limit)
	}
	if held, ok := s.client.cfg.Store.Current(); ok && s.fromNothing {
		// The difference to what the store holds is what the kernel needs to hear of.
		if next, touched, err = held.Table.Apply(fwd.DiffTables(held.Table, next)); err != nil {
			return fmt.Errorf("revision %d: compare with the table held: %w", p.number, err)
		}
	}
	v := Version{Table: next, Epoch: s.epoch, Revision: p.number}
	if p.cause != 0 {
		v.Cause = time.UnixMicro(int64(p.cause))
	}
	s.table, s.number, s.fromNothing, s.verified = next, p.number, false, true
	s.client.forget = false
	s.client.outbox.raise(p.number)
	s.client.cfg.Metrics.revisions.Inc()
	s.client.cfg.Metrics.received.Set(float64(p.number))
	s.client.cfg.Store.Put(v, touched)
	return nil
}

// heartbeat takes a new epoch and compares digests. Before the first revision, and between the pieces of one, it says that the stream lives.
func (s *session) heartbeat(h *fairleadv1.Heartbeat) error {
	if list := h.GetControllers(); len(list) > 0 {
		s.client.cfg.Directory.Found(list)
	}
	if epoch := h.GetEpoch(); epoch != 0 {
		if err := s.client.fence(epoch); err != nil {
			return err
		}
		s.epoch = epoch
		s.client.outbox.renew(epoch)
	}
	if !s.verified || s.pieces.open {
		return nil
	}
	if have := s.table.Digest(); have != h.GetDigest() {
		return fmt.Errorf("heartbeat %d: %w: have %016x, want %016x", h.GetNumber(), fwd.ErrDigest, have, h.GetDigest())
	}
	return nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", fwd.ErrMalformed, fmt.Sprintf(format, args...))
}
