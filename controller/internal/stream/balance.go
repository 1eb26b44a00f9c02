package stream

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// How a replica that has clearly more than its share of the agents gives some away; see Balance.
const (
	// sendEvery is the time between two agents that are sent away.
	sendEvery = 500 * time.Millisecond
	// surplusLasts is how long there are too many before the first is sent away: a replica that died is listed for up to a
	// minute, and its agents are better off here than on their way.
	surplusLasts = 2 * time.Minute
	// settled is how old a stream is before its agent may be sent away.
	settled = time.Minute
	// turnedAway is how long an agent that was sent away is refused here, once: it may know of this replica alone as yet, or
	// begin its round with it.
	turnedAway = 10 * time.Second
	// leftAlone is how long an agent that was sent away is not sent away again, wherever it is then.
	leftAlone = time.Hour
)

// balance is what a Server remembers of agents that it has sent away. Server.mu guards it.
type balance struct {
	// over is since when there are too many, zero if there are not; giving is true from a while after that to the lower bound.
	over   time.Time
	giving bool
	// sent are the nodes, with the moment; refused those of them that came back and were refused.
	sent    map[string]time.Time
	refused map[string]struct{}
}

// bounds are the numbers of agents above which a replica begins to send some away, and at which it stops.
type bounds struct{ begin, end int }

// boundsOf returns a quarter and an eighth over the share, and more where agents are few: small clusters stay as they are.
func boundsOf(nodes, replicas int) bounds {
	share := (nodes + replicas - 1) / replicas
	return bounds{begin: share + share/4 + 50, end: share + share/8 + 25}
}

// gives reports whether a replica with so many agents sends some away.
func (b *balance) gives(agents int, at bounds, now time.Time) bool {
	switch {
	case agents <= at.end || agents <= at.begin && !b.giving:
		b.over, b.giving = time.Time{}, false
	case b.over.IsZero():
		b.over = now
	}
	b.giving = b.giving || !b.over.IsZero() && now.Sub(b.over) >= surplusLasts
	return b.giving
}

// Balance sends agents elsewhere while this replica has clearly more than its share, two a second, until ctx ends: a replica that
// was added has none else until they connect anew. They go as in a drain. What the share is follows from the
// nodes and the replicas that there are, so that replicas need not know of each other's agents. No agent is sent away in its
// first minute, in the middle of a revision, or twice within an hour.
func (s *Server) Balance(ctx context.Context) {
	ticker := time.NewTicker(sendEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if run := s.surplus(now); run != nil {
				run.stop <- errElsewhere() // room for it: an agent is sent away once
			}
		}
	}
}

// surplus returns a stream to end, nil for none.
func (s *Server) surplus(now time.Time) *session {
	controllers := s.controllers.Load()
	if s.cfg.Nodes == nil || controllers == nil || len(*controllers) < 2 {
		return nil
	}
	at := boundsOf(s.cfg.Nodes(), len(*controllers))
	s.mu.Lock()
	defer s.mu.Unlock()
	agents := 0
	for _, run := range s.live {
		if !run.replica {
			agents++
		}
	}
	if !s.balance.gives(agents, at, now) || s.draining {
		return nil
	}
	for _, run := range s.live { // any of them
		if run.replica || now.Sub(run.since) < settled || run.given || now.Sub(s.balance.sent[run.node]) < leftAlone {
			continue
		}
		run.given = true
		s.balance.send(run.node, now)
		return run
	}
	return nil
}

// send notes that an agent is sent away, and forgets those that may be again.
func (b *balance) send(node string, now time.Time) {
	if b.sent == nil {
		b.sent, b.refused = map[string]time.Time{}, map[string]struct{}{}
	}
	for other, at := range b.sent {
		if now.Sub(at) >= leftAlone {
			delete(b.sent, other)
			delete(b.refused, other)
		}
	}
	b.sent[node] = now
	delete(b.refused, node)
}

// turnsAway reports whether an agent has just been sent away and is to be refused, which it is once: where no other replica
// answers, it is served here.
func (s *Server) turnsAway(node string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, sent := s.balance.sent[node]
	_, refused := s.balance.refused[node]
	if !sent || refused || now.Sub(at) > turnedAway {
		return false
	}
	s.balance.refused[node] = struct{}{}
	return true
}

func errElsewhere() error {
	return status.Error(codes.Unavailable, "this replica has more than its share of the agents: try another one")
}
