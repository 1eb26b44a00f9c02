package fairlead

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/test/cluster"
)

// AgentMetric is the value of a metric without labels of a node's agent.
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
