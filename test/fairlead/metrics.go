package fairlead

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/test/cluster"
)

// AgentMetric is the value of a metric of a node's agent. The name is as the agent writes it, with its labels if it has any.
func (s *System) AgentMetric(ctx context.Context, n *cluster.Node, name string) (float64, error) {
	_, body, err := s.get(ctx, n, "10249", "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(body) {
		text, found := strings.CutPrefix(line, name+" ")
		if !found {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s of %s: %w", name, n.Name, err)
		}
		return value, nil
	}
	return 0, fmt.Errorf("read metric %s of %s: it is not there", name, n.Name)
}
