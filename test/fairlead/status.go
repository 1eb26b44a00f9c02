package fairlead

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Connected is the number of agents that are connected to the controller and hold everything; 0 while it is away.
func (s *System) Connected(ctx context.Context) int {
	var status struct {
		Connected int `json:"connected"`
		Current   int `json:"current"`
	}
	if err := s.getJSON(ctx, "/debug/fairlead/status?format=json", &status); err != nil {
		return 0
	}
	return min(status.Connected, status.Current)
}

func (s *System) getJSON(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.HTTP()+path, nil)
	if err != nil {
		return fmt.Errorf("ask the controller: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask the controller: %w", err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("read the controller's answer to %s: %w", path, err)
	}
	return nil
}
