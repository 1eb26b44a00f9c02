package client

import "github.com/prometheus/client_golang/prometheus"

// Metrics of a Client.
type Metrics struct {
	connected, received                              prometheus.Gauge
	attempts, revisions, mismatches, malformed, lost prometheus.Counter
	fenced                                           prometheus.Counter
}

// NewMetrics returns Metrics registered at r, which must not have any of these names yet.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_connected",
			Help: "1 while a controller has welcomed this agent, else 0.",
		}),
		received: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_received_revision",
			Help: "Revision of the newest table that was received and verified.",
		}),
		attempts:  counter("fairlead_connect_attempts_total", "Attempts to reach a controller."),
		revisions: counter("fairlead_received_revisions_total", "Revisions that were received and verified."),
		mismatches: counter("fairlead_digest_mismatches_total",
			"Revisions and heartbeats that did not agree with the table held; the table is then compared from nothing."),
		malformed: counter("fairlead_malformed_messages_total",
			"Messages that the protocol or a limit does not allow; the stream is then closed."),
		lost: counter("fairlead_silent_streams_total", "Streams that were closed since nothing was heard for three heartbeats."),
		fenced: counter("fairlead_older_epochs_total",
			"Streams that were closed since their controller was behind a leader that this agent has heard of."),
	}
	r.MustRegister(m.connected, m.received, m.attempts, m.revisions, m.mismatches, m.malformed, m.lost, m.fenced)
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}
