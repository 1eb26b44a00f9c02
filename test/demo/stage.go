package demo

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/commits"
	"github.com/fairlead/fairlead/test/fairlead"
)

// stage is a running system: its cluster, where its agents log, and what the kernels of its nodes say.
type stage struct {
	cluster *cluster.Cluster
	// logs are the paths of the agents' logs, kernels what is heard of the nodes' kernels, both by node name.
	logs    map[string]string
	kernels map[string]*commits.Log
}

// newStage listens to the kernels until ctx ends. That of a node which has one of its own is not heard.
func newStage(ctx context.Context, c *cluster.Cluster, logs map[string]string) (*stage, error) {
	st := &stage{cluster: c, logs: logs, kernels: map[string]*commits.Log{}}
	for _, n := range c.Nodes {
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

// logsOf are the logs of agents that run as processes.
func logsOf(s *fairlead.System) map[string]string {
	logs := map[string]string{}
	for node, agent := range s.Agents {
		logs[node] = agent.Log()
	}
	return logs
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
