package stream

import (
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// ErrNotLeading is the status that a replica gets from one that does not lead, or whose tables are still its predecessor's.
func ErrNotLeading() error {
	return status.Error(codes.Unavailable, "this replica does not lead, or has not computed anything yet")
}

func isReplica(h *fairleadv1.Hello) bool { return h.GetRole() == fairleadv1.Hello_ROLE_REPLICA }

// key tells streams of one node, or of one replica, from others. No node's name begins with a slash.
func (r *session) key() string {
	if r.replica {
		return "/replica/" + r.node
	}
	return r.node
}

// serveReplica runs a replica's stream.
func (s *Server) serveReplica(run *session, remote string) error {
	log := s.cfg.Log.With(slog.String("replica", run.node), slog.String("remote", remote))
	log.Info("replica connected")
	run.observer = unobserved{}
	err := run.loop()
	log.Info("replica disconnected", slog.Any("cause", err))
	return err
}

// EndReplicas ends the streams of all replicas: this one does not lead any more.
func (s *Server) EndReplicas() {
	s.mu.Lock()
	var runs []*session
	for _, run := range s.live {
		if run.replica {
			runs = append(runs, run)
		}
	}
	s.mu.Unlock()
	for _, run := range runs {
		select {
		case run.stop <- ErrNotLeading():
		default: // it ends for other reasons
		}
	}
}

// unobserved is the Session of a replica, whose kernel nobody asks for.
type unobserved struct{}

var _ Session = unobserved{}

func (unobserved) Sent(uint64, time.Time)        {}
func (unobserved) Applied(uint64, time.Duration) {}
func (unobserved) Failed(uint64, string)         {}
func (unobserved) Closed(error)                  {}
