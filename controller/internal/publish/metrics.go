package publish

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the writes.
type metrics struct {
	syncs     *prometheus.CounterVec
	takenOver prometheus.Counter
	foreign   prometheus.Counter
	contested prometheus.Gauge
	lag       prometheus.Histogram
}

// newMetrics registers them. pending is the age in seconds of the oldest change that no EndpointSlice carries.
func newMetrics(registry prometheus.Registerer, pending func() float64) (*metrics, error) {
	m := &metrics{
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_publish_lag_seconds",
			Help: "From handing a Service's change to the streams until its EndpointSlices carry it, while this replica leads.",
			// 5 ms to 163 s, doubling: the batch period lies at 50 ms, what client limits do to 10,000 Services at the end.
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 16),
		}),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_publish_syncs_total",
			Help: "Attempts to bring published endpoints of a Service up to date, by kind (slices, endpoints, mirror) and result (ok, stale, error).",
		}, []string{"kind", "result"}),
		takenOver: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_publish_taken_over_slices_total",
			Help: "EndpointSlices of another endpoint controller that were taken over.",
		}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_publish_foreign_writes_total",
			Help: "Writes of another endpoint controller to Services that this one publishes: anything but 0 means that two run.",
		}),
		contested: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_publish_contested_services",
			Help: "Services whose EndpointSlices are left to another endpoint controller that turned out to run.",
		}),
	}
	oldest := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_publish_pending_seconds",
		Help: "Age of the oldest change that tables have and EndpointSlices do not; 0 if there is none, or if this replica does not lead.",
	}, pending)
	for _, c := range []prometheus.Collector{m.syncs, m.takenOver, m.foreign, m.contested, m.lag, oldest} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register publish metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) attempted(k kind, err error) {
	result := "ok"
	switch {
	case errors.Is(err, errStale):
		result = "stale"
	case err != nil:
		result = "error"
	}
	m.syncs.WithLabelValues(k.String(), result).Inc()
}
