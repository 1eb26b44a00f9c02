package stream

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// session is one accepted stream: loop, in the handler's goroutine, sends; reports, in another one, receives.
type session struct {
	server   *Server
	stream   grpc.ServerStream
	node     string
	replica  bool
	follower Follower
	observer Session
	// since is when the stream was accepted. given, which Server.mu guards, says that its agent is sent away.
	since time.Time
	given bool
	// stop gets the reasons to end: a newer stream of the node was accepted, the server drains, no more reports come (nil: the
	// agent closed the stream), the agent is sent elsewhere, or this replica does not lead any more. It has room for all.
	stop chan error
	// question is what the follower is asked before its first revision, nil for nothing; answers gets one answer at most.
	question *fairleadv1.Question
	answers  chan *fairleadv1.Answer
	// answered belongs to the goroutine that receives.
	answered bool
	// told is the list of controllers that the agent knows of; used by the goroutine that sends.
	told *[]string
	// first is the epoch of the Welcome, latest the one that was told last: revisions of all between are of this stream.
	// Only the goroutine that sends writes latest.
	first  uint64
	latest atomic.Uint64
}

// stopReasons is how many reasons to end a stream can get.
const stopReasons = 5

// loop sends what changes until something ends the stream. A Send that blocks, because the agent does not read, blocks this
// loop only; what is published meanwhile is merged by the follower.
func (r *session) loop() error {
	if err := r.welcome(); err != nil {
		return err
	}
	go func() { r.stop <- r.reports() }() // ends with the stream, which is when the handler returns
	changed, late, err := r.ask()
	if err != nil {
		return err
	}
	interval := r.server.cfg.Heartbeat
	// The first heartbeat comes at a random moment, so that agents that arrived together do not stay in step.
	heartbeat := time.NewTimer(randomly(interval))
	defer heartbeat.Stop()
	for {
		select {
		case answer := <-r.answers:
			changed, late = r.follower.Changed(), nil
			err = r.resume(answer)
		case <-late:
			err = invalid("message: no answer within " + r.server.cfg.HelloTimeout.String())
		case <-changed:
			err = r.revision()
		case <-heartbeat.C:
			heartbeat.Reset(interval)
			err = r.heartbeat()
		case reason := <-r.stop:
			return reason
		}
		if err != nil {
			return err
		}
	}
}

func (r *session) welcome() error {
	cfg := r.server.cfg
	r.first = cfg.Epoch()
	r.latest.Store(r.first)
	return r.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Welcome{Welcome: &fairleadv1.Welcome{
		Epoch: r.first, Version: cfg.Version, HeartbeatIntervalMs: uint32(cfg.Heartbeat.Milliseconds()), Controllers: r.controllers(),
	}}})
}

// controllers returns the replicas if they are known and the agent has not heard of them yet.
func (r *session) controllers() []string {
	now := r.server.controllers.Load()
	if now == r.told {
		return nil
	}
	r.told = now
	return *now
}

func (r *session) revision() error {
	if err := r.epoch(); err != nil {
		return err
	}
	messages, cause := r.follower.Next()
	if len(messages) == 0 {
		return nil
	}
	_, number := r.follower.Position()
	r.observer.Sent(number, cause)
	for _, m := range messages {
		if err := r.send(encoded(m)); err != nil {
			return err
		}
	}
	return r.epoch() // it may have begun in between
}

// epoch tells of a new one, if it has begun.
func (r *session) epoch() error {
	if r.server.cfg.Epoch() == r.latest.Load() {
		return nil
	}
	return r.heartbeat()
}

func (r *session) heartbeat() error {
	epoch := r.server.cfg.Epoch()
	number, digest := r.follower.Heartbeat()
	beat := &fairleadv1.Heartbeat{Number: number, Digest: digest, Controllers: r.controllers()}
	if r.latest.Swap(epoch) != epoch {
		beat.Epoch = epoch
	}
	return r.send(&fairleadv1.FollowResponse{Message: &fairleadv1.FollowResponse_Heartbeat{Heartbeat: beat}})
}

// send returns gRPC's own status errors as they are: the handler returns them.
func (r *session) send(m any) error { return r.stream.SendMsg(m) }

// reports takes what follows the hello until the stream ends.
func (r *session) reports() error {
	for {
		m, err := receive(r.stream)
		if m == nil {
			return err
		}
		if err := r.message(m); err != nil {
			return err
		}
	}
}

func (r *session) message(m *fairleadv1.FollowRequest) error {
	if m.GetAnswer() != nil {
		return r.answer(m.GetAnswer())
	}
	report := m.GetReport()
	if report == nil {
		return invalid("message: want report, the hello comes once and first")
	}
	_, last := r.follower.Position()
	if err := checkReport(report, r.first, r.latest.Load(), last); err != nil {
		return err
	}
	for _, n := range report.GetNotices() {
		r.server.cfg.Notice(r.node, n)
	}
	switch {
	case report.GetEpoch() < r.first:
		// What the agent holds from another author says nothing about our revisions.
	case report.GetError() != "":
		r.observer.Failed(report.GetNumber(), report.GetError())
	default:
		r.observer.Applied(report.GetNumber(), time.Duration(report.GetDurationMicros())*time.Microsecond)
	}
	return nil
}
