package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of a Loop. Where a fact means the same in kube-proxy, it has kube-proxy's name and buckets, so that dashboards
// and alerts go on working; what is new is called fairlead_*.
type Metrics struct {
	syncs, fullSyncs, partialSyncs, programming prometheus.Histogram
	lastSync, lastQueued, applied               prometheus.Gauge
	writes, audits, repairs, differences        prometheus.Counter
	failures, notices                           *prometheus.CounterVec
}

// NewMetrics returns Metrics registered at r, which must not have any of these names yet.
func NewMetrics(r prometheus.Registerer) *Metrics {
	syncBuckets := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &Metrics{
		syncs: histogram("kubeproxy_sync_proxy_rules_duration_seconds",
			"Time that programming the kernel took, failed attempts included.", syncBuckets),
		fullSyncs: histogram("kubeproxy_sync_full_proxy_rules_duration_seconds",
			"The same, of attempts that looked at everything.", syncBuckets),
		partialSyncs: histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds",
			"The same, of attempts that looked at what had changed.", syncBuckets),
		programming: histogram("kubeproxy_network_programming_duration_seconds",
			"Time from when the controller heard of a change until this node's kernel held it.", programmingBuckets()),
		lastSync: gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds",
			"When the kernel last took a table, in seconds since 1970."),
		lastQueued: gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
			"When a table last arrived that differs from what the kernel holds, in seconds since 1970."),
		applied: gauge("fairlead_applied_revision",
			"Revision of the table that this node forwards by."),
		writes: counter("fairlead_kernel_writes_total",
			"Transactions with a change that were given to the kernel."),
		audits: counter("fairlead_audits_total",
			"Times that the kernel was compared with the table."),
		repairs: counter("fairlead_audit_repairs_total",
			"Audits that found the kernel changed by somebody else, upon which it was programmed anew."),
		differences: counter("fairlead_audit_differences_total",
			"Things that audits found missing, changed or foreign."),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_programming_failures_total",
			Help: "Attempts that failed, by stage: dataplane, audit, or what follows the dataplane.",
		}, []string{"stage"}),
		notices: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_notices_total",
			Help: "Facts that the owners of Services were told in Events, by reason, such as ports that this node's kernel cannot forward.",
		}, []string{"reason"}),
	}
	r.MustRegister(m.syncs, m.fullSyncs, m.partialSyncs, m.programming, m.lastSync, m.lastQueued, m.applied,
		m.writes, m.audits, m.repairs, m.differences, m.failures, m.notices)
	return m
}

// programmingBuckets are those of the network programming latency SLI: 0.25, 0.5, 1 to 59 by one, 60 to 115 by five, 120
// to 300 by 30; with finer ones below, since that is where this agent is.
func programmingBuckets() []float64 {
	buckets := []float64{0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5}
	buckets = append(buckets, prometheus.LinearBuckets(1, 1, 59)...)
	buckets = append(buckets, prometheus.LinearBuckets(60, 5, 12)...)
	return append(buckets, prometheus.LinearBuckets(120, 30, 7)...)
}

func (m *Metrics) synced(took time.Duration, all bool) {
	m.syncs.Observe(took.Seconds())
	if all {
		m.fullSyncs.Observe(took.Seconds())
	} else {
		m.partialSyncs.Observe(took.Seconds())
	}
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}
