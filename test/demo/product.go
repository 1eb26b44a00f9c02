package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/fairlead"
	"github.com/fairlead/fairlead/test/installed"
)

// product is a Fairlead that forwards on all nodes, as far as the story needs it.
type product struct {
	cluster *cluster.Cluster
	// what it is, for people; user begins its names at the API server; logs are the paths of the agents' logs, by node name.
	what, user string
	logs       map[string]string
}

// asProcesses starts the binaries of `make build`, one controller on the host and an agent on each node.
func asProcesses(ctx context.Context, c *cluster.Cluster, cfg Config) (*product, error) {
	s, err := fairlead.Start(ctx, c, fairlead.Config{Bin: cfg.Bin, Mode: cfg.Mode})
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("fairlead-controller runs on the host, fairlead-agent on %d nodes", len(c.Nodes))
	return &product{cluster: c, what: what, user: fairlead.UserPrefix, logs: logsOf(s)}, s.WaitReady(ctx)
}

// asPods installs the chart.
func asPods(ctx context.Context, c *cluster.Cluster, cfg Config) (*product, error) {
	s, err := installed.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	mode := cfg.Mode
	if mode == "" {
		mode = "auto"
	}
	replicas := min(2, len(c.Nodes)) // each on a node of its own
	values := fmt.Sprintf("{controller: {replicas: %d, logLevel: debug}, agent: {logLevel: debug, mode: %s}}", replicas, mode)
	if _, err := s.Apply(ctx, values); err != nil {
		return nil, err
	}
	if err := s.WaitReady(ctx); err != nil {
		return nil, err
	}
	logs := map[string]string{}
	for _, n := range c.Nodes {
		if logs[n.Name], err = s.AgentLog(ctx, n); err != nil {
			return nil, err
		}
	}
	what := fmt.Sprintf("helm install: fairlead-controller in %d Pods, fairlead-agent in one on each of %d nodes", replicas, len(c.Nodes))
	return &product{cluster: c, what: what, user: installed.UserPrefix, logs: logs}, nil
}

// modes says by which mode each node forwards.
func modes(ctx context.Context, c *cluster.Cluster) string {
	of := map[string][]string{}
	for _, n := range c.Nodes {
		mode := "unknown"
		if status, body, err := n.Get(ctx, "10249", "/proxyMode"); err == nil && strings.Contains(status, " 200 ") {
			mode = body
		}
		of[mode] = append(of[mode], n.Name)
	}
	var parts []string
	for _, mode := range slices.Sorted(maps.Keys(of)) {
		if len(of) == 1 {
			return mode + " mode"
		}
		parts = append(parts, mode+" mode on "+strings.Join(of[mode], ", "))
	}
	return strings.Join(parts, "; ")
}
