package demo

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/test/commits"
	"github.com/fairlead/fairlead/test/fairlead"
)

// stage is a running system, and what the kernels of its nodes say.
type stage struct {
	*fairlead.System
	kernels map[string]*commits.Log
}

// newStage listens to the kernels until ctx ends. That of a node which has one of its own is not heard.
func newStage(ctx context.Context, s *fairlead.System) (*stage, error) {
	st := &stage{s, map[string]*commits.Log{}}
	for _, n := range s.Cluster.Nodes {
		path := n.NetworkNamespace()
		if path == "" {
			continue
		}
		log, err := commits.Watch(ctx, path)
		if err != nil {
			return nil, err
		}
		st.kernels[n.Name] = log
	}
	return st, nil
}

// took is when a node's kernel took what its agent reported: by the kernel's own word, else by the agent's, which is later.
func (s *stage) took(node string, p fairlead.Applied) time.Time {
	if log, ok := s.kernels[node]; ok {
		if commit, ok := log.Last(p.Cause, p.At); ok {
			return commit.At
		}
	}
	return p.At
}
