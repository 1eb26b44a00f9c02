package observe

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what is counted as it happens.
type metrics struct {
	streams, applied, failed           prometheus.Counter
	programming, propagation, lastNode prometheus.Histogram
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	histogram := func(name, help string) prometheus.Histogram {
		// 1 ms to 65 s, doubling: targets lie between 10 and 120 ms, outages above.
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 17)})
	}
	return &metrics{
		streams: counter("fairlead_streams_total", "Streams of agents that were accepted."),
		applied: counter("fairlead_reports_applied_total", "Reports of agents whose kernel holds a revision."),
		failed:  counter("fairlead_reports_failed_total", "Reports of agents whose kernel refused a revision."),
		programming: histogram("fairlead_agent_programming_seconds",
			"How long an agent took to program a revision, as it says."),
		propagation: histogram("fairlead_propagation_seconds",
			"From hearing of the oldest change in a revision to one node's report that its kernel holds it."),
		lastNode: histogram("fairlead_propagation_last_node_seconds",
			"From hearing of the oldest change in a revision to the report of the last of the connected nodes. Sampled under load."),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.streams, m.applied, m.failed, m.programming, m.propagation, m.lastNode}
}

// gauges are what is computed when somebody asks.
type gauges struct{ observer *Observer }

// gauge describes one of them.
type gauge struct {
	name, help string
	value      func(s Status) float64
}

func gaugeList() []gauge {
	return []gauge{
		{"fairlead_epoch", "Epoch of the revisions.", func(s Status) float64 { return float64(s.Epoch) }},
		{"fairlead_revision", "Number of the last revision.", func(s Status) float64 { return float64(s.Revision) }},
		{"fairlead_revision_everywhere", "Revision up to which every connected node holds everything.", func(s Status) float64 { return float64(s.Everywhere) }},
		{"fairlead_agents_connected", "Agents with a stream.", func(s Status) float64 { return float64(s.Connected) }},
		{"fairlead_agents_lagging", "Connected agents that do not hold everything published.", func(s Status) float64 { return float64(s.Connected - s.Current) }},
		{"fairlead_agents_failing", "Connected agents whose last report was an error.", func(s Status) float64 { return float64(s.Failing) }},
		{"fairlead_lag_seconds", "Age of the oldest revision that a connected agent does not hold.", func(s Status) float64 { return s.LagSeconds }},
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range gaugeList() {
		out <- d.desc()
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	status := g.observer.Status()
	for _, d := range gaugeList() {
		out <- prometheus.MustNewConstMetric(d.desc(), prometheus.GaugeValue, d.value(status))
	}
}

func (d gauge) desc() *prometheus.Desc { return prometheus.NewDesc(d.name, d.help, nil, nil) }
