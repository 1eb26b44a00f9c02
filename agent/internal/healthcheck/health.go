package healthcheck

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/proto/fwd"
)

// Health tells whether the agent keeps the kernel up to date. It is safe for concurrent use.
//
// It is a matter of tables that have arrived: a controller that is away makes nobody unhealthy, since a restart or another
// node would not help.
type Health struct {
	now     func() time.Time
	timeout time.Duration

	mu sync.Mutex // guards what follows
	// pending is when the oldest table that the kernel does not hold yet arrived; zero if there is none.
	pending time.Time
	// updated is when the kernel last took a table; zero before the first.
	updated time.Time
	node    fwd.NodeFacts
}

// NewHealth returns a Health that has heard nothing. now is the clock; timeout is how long a table may wait for the kernel
// before the agent counts as stuck: twice the sync period, as in kube-proxy.
func NewHealth(now func() time.Time, timeout time.Duration) *Health {
	return &Health{now: now, timeout: timeout}
}

// Pending says that a table has arrived which the kernel does not hold yet.
func (h *Health) Pending() {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pending.IsZero() {
		h.pending = now
	}
}

// Updated says that the kernel holds the newest table that has arrived, and what that table says of the node. After a
// success with an older table than the newest, call Pending again.
func (h *Health) Updated(node fwd.NodeFacts) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending, h.updated, h.node = time.Time{}, now, node
}

// Forwarding reports whether the kernel has taken a table and none waits too long: what healthCheckNodePorts call a healthy
// service proxy. Unlike kube-proxy it is false before the first success, when this node forwards nothing yet.
func (h *Health) Forwarding() bool {
	s := h.state()
	return s.synced && !s.stuck
}

// state is a consistent view of Health at one time.
type state struct {
	now, updated            time.Time
	synced, stuck, eligible bool
}

func (h *Health) state() state {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	return state{
		now: now, updated: h.updated,
		synced:   !h.updated.IsZero(),
		stuck:    !h.pending.IsZero() && now.Sub(h.pending) >= h.timeout,
		eligible: !h.node.Deleting && !h.node.AutoscalerDraining,
	}
}

// Healthz answers 200 iff the agent is Forwarding and its Node is neither being deleted nor about to be (the taint
// ToBeDeletedByClusterAutoscaler; KEP-3836): what cloud load balancers ask to choose nodes.
func (h *Health) Healthz(w http.ResponseWriter, _ *http.Request) {
	s := h.state()
	forwarding := s.synced && !s.stuck
	writeHealth(w, s, healthBody{Healthy: forwarding, NodeEligible: &s.eligible}, forwarding && s.eligible)
}

// Livez answers 200 unless a table has waited too long: what the kubelet asks to restart the agent. An agent that has
// heard nothing yet is alive.
func (h *Health) Livez(w http.ResponseWriter, _ *http.Request) {
	s := h.state()
	writeHealth(w, s, healthBody{Healthy: !s.stuck}, !s.stuck)
}

// healthBody has the fields of kube-proxy's answer. Status is by IP family, which this agent programs together.
type healthBody struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyStatus `json:"status,omitempty"`
}

type familyStatus struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// writeHealth completes the body and writes the answer. As in kube-proxy, lastUpdated is recent whenever the answer is 200.
func writeHealth(w http.ResponseWriter, s state, body healthBody, ok bool) {
	body.LastUpdated, body.CurrentTime = s.updated, s.now
	if ok {
		body.LastUpdated = s.now
	}
	if s.synced {
		body.Status = map[string]familyStatus{}
		for _, f := range fwd.Families() {
			body.Status[f.String()] = familyStatus{LastUpdated: s.updated, Healthy: body.Healthy}
		}
	}
	writeJSON(w, ok, body)
}

// writeJSON answers 200 or 503. A failed write is the asker's loss alone.
func writeJSON(w http.ResponseWriter, ok bool, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if ok {
		w.WriteHeader(http.StatusOK)
	} else {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(body)
}
