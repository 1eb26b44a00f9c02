package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// AskConfig says what to ask, and how often.
type AskConfig struct {
	Client   string        `json:",omitempty"` // goes into every sample: where this client runs
	Protocol string        // HTTP, TCP or UDP
	Target   string        // host:port
	Timeout  time.Duration // of one request
	Count    int           // requests, one after another, each over a connection of its own
}

// askMost bounds AskConfig.Count.
const askMost = 10_000

func (c AskConfig) load() LoadConfig {
	return LoadConfig{Client: c.Client, Protocol: c.Protocol, Target: c.Target, Timeout: c.Timeout, Rate: 1}
}

// Ask sends some requests, one after another, and returns what became of each, in order. The error is about cfg.
func Ask(ctx context.Context, cfg AskConfig) ([]Sample, error) {
	var count error
	if cfg.Count < 1 || cfg.Count > askMost {
		count = fmt.Errorf("--count %d: give 1 to %d", cfg.Count, askMost)
	}
	if err := errors.Join(cfg.load().Validate(), count); err != nil {
		return nil, err
	}
	samples := make([]Sample, cfg.Count)
	for i := range samples {
		samples[i] = once(ctx, cfg.load())
	}
	return samples, nil
}

// WriteSamples writes samples as Load does: a JSON line each.
func WriteSamples(out io.Writer, samples []Sample) error {
	encoder := json.NewEncoder(out)
	for _, s := range samples {
		if err := encoder.Encode(s); err != nil {
			return fmt.Errorf("write samples: %w", err)
		}
	}
	return nil
}

// ask makes the server a client: it asks what the request's body, an AskConfig, says.
func (s *server) ask(w http.ResponseWriter, r *http.Request) {
	cfg := AskConfig{Client: s.cfg.Name}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&cfg); err != nil {
		http.Error(w, "body: give an AskConfig as JSON: "+err.Error(), http.StatusBadRequest)
		return
	}
	samples, err := Ask(r.Context(), cfg)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := WriteSamples(w, samples); err != nil {
		return // whoever asked is gone
	}
}
