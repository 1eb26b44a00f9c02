package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/fairlead/fairlead/test/cluster"
	"github.com/fairlead/fairlead/test/workload"
)

// AskFromNode sends a few requests from a node and returns what became of each.
func AskFromNode(ctx context.Context, n *cluster.Node, binary string, cfg workload.AskConfig) ([]workload.Sample, error) {
	cmd := n.Command(ctx, binary, "ask", "--client", cfg.Client, "--protocol", cfg.Protocol, "--target", cfg.Target,
		"--timeout", cfg.Timeout.String(), "--count", strconv.Itoa(cfg.Count))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask from %s: %w: %s", n.Name, err, stderr.String())
	}
	return workload.ReadSamples(bytes.NewReader(out))
}

// AskFromServer lets a workload's server, whose HTTP address is host:port, send a few requests.
func AskFromServer(ctx context.Context, server string, cfg workload.AskConfig) ([]workload.Sample, error) {
	body, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("ask from %s: %w", server, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+server+"/admin/ask", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask from %s: %w", server, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask from %s: %w", server, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		problem, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("ask from %s: %s: %s", server, response.Status, problem)
	}
	return workload.ReadSamples(response.Body)
}
