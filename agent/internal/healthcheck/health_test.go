package healthcheck

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

const timeout = time.Minute

// TestHealth walks through an agent's life; at each step /healthz, /livez and Forwarding are looked at.
func TestHealth(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := NewHealth(func() time.Time { return now }, timeout)
	ok, no := http.StatusOK, http.StatusServiceUnavailable
	for _, step := range []struct {
		name           string
		do             func()
		healthz, livez int
		forwarding     bool
	}{
		{"started, no controller", func() {}, no, ok, false},
		{"an hour later still none", func() { now = now.Add(time.Hour) }, no, ok, false},
		{"first table waits", h.Pending, no, ok, false},
		{"first table in the kernel", func() { h.Updated(fwd.NodeFacts{}) }, ok, ok, true},
		{"nothing happens for a day", func() { now = now.Add(24 * time.Hour) }, ok, ok, true},
		{"a change waits", h.Pending, ok, ok, true},
		{"not yet too long", func() { now = now.Add(timeout - 1) }, ok, ok, true},
		{"another change does not extend it", func() { h.Pending(); now = now.Add(1) }, no, no, false},
		{"written at last", func() { h.Updated(fwd.NodeFacts{}) }, ok, ok, true},
		{"Node is being deleted", func() { h.Updated(fwd.NodeFacts{Deleting: true}) }, no, ok, true},
		{"Node has the autoscaler's taint", func() { h.Updated(fwd.NodeFacts{AutoscalerDraining: true}) }, no, ok, true},
		{"and the controller is away", func() { now = now.Add(time.Hour) }, no, ok, true},
		{"taint is gone", func() { h.Updated(fwd.NodeFacts{}) }, ok, ok, true},
	} {
		step.do()
		if got, _ := ask(t, h.Healthz); got != step.healthz {
			t.Errorf("%s: /healthz: %d, want %d", step.name, got, step.healthz)
		}
		if got, _ := ask(t, h.Livez); got != step.livez {
			t.Errorf("%s: /livez: %d, want %d", step.name, got, step.livez)
		}
		if got := h.Forwarding(); got != step.forwarding {
			t.Errorf("%s: Forwarding: %v", step.name, got)
		}
	}
}

// TestHealthBody holds the fields that kube-proxy's answers have.
func TestHealthBody(t *testing.T) {
	updated := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := updated
	h := NewHealth(func() time.Time { return now }, timeout)
	h.Updated(fwd.NodeFacts{})
	h.Pending()
	now = now.Add(timeout)
	for _, c := range []struct {
		path     http.HandlerFunc
		eligible any
	}{{h.Healthz, true}, {h.Livez, nil}} {
		_, body := ask(t, c.path)
		if body["lastUpdated"] != updated.Format(time.RFC3339) || body["currentTime"] != now.Format(time.RFC3339) ||
			body["nodeEligible"] != c.eligible || body["healthy"] != false {
			t.Errorf("body %v", body)
		}
	}
	h.Updated(fwd.NodeFacts{})
	now = now.Add(time.Hour)
	if _, body := ask(t, h.Healthz); body["lastUpdated"] != now.Format(time.RFC3339) {
		t.Errorf("healthy: lastUpdated is %v, want the current time %v", body["lastUpdated"], now)
	}
}

func ask(t *testing.T, handler http.HandlerFunc) (code int, body map[string]any) {
	t.Helper()
	w := httptest.NewRecorder()
	handler(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("body %q: %v", w.Body.String(), err)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	return w.Code, body
}
