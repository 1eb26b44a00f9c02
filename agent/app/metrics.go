package app

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fairlead/fairlead/agent/internal/store"
	"github.com/fairlead/fairlead/proto/fwd"
)

// metrics are those that no stage has; the stages register their own beside them.
type metrics struct {
	registry      *prometheus.Registry
	deletedFlows  prometheus.Counter
	healthz, live *prometheus.CounterVec
}

func newMetrics(cfg Config, tables *store.Store) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		deletedFlows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_conntrack_deleted_flows_total",
			Help: "Flows that were removed from connection tracking since they reached a place that the table does not name.",
		}),
		healthz: answers("kubeproxy_proxy_healthz_total", "Answers of /healthz by HTTP code."),
		live:    answers("kubeproxy_proxy_livez_total", "Answers of /livez by HTTP code."),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.deletedFlows, m.healthz, m.live)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fairlead_build_info", Help: "Always 1; says which version runs.",
		ConstLabels: prometheus.Labels{"version": cfg.Version},
	})
	build.Set(1)
	m.registry.MustRegister(build)
	for _, g := range []struct {
		name, help string
		value      func(*fwd.Table) int
	}{
		{"fairlead_rows", "Rows of the newest verified table.", (*fwd.Table).Len},
		{"fairlead_unknown_rows", "Rows of kinds that this version does not know: it is older than the controller.", (*fwd.Table).Unknown},
		{"fairlead_refused_rows", "Rows that must not reach a kernel, such as endpoints that are loopback addresses.", (*fwd.Table).Refused},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: g.name, Help: g.help}, func() float64 {
			v, ok := tables.Current()
			if !ok {
				return 0
			}
			return float64(g.value(v.Table))
		}))
	}
	return m
}

// chose says which mode is in force, and which was asked for.
func (m *metrics) chose(cfg Config, effective string) {
	requested := cfg.Rules.Mode
	if cfg.Dataplane != nil {
		requested = effective
	}
	chosen := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fairlead_proxy_mode", Help: "Always 1; says which mode was requested and which is in force.",
		ConstLabels: prometheus.Labels{"requested": requested, "effective": effective},
	})
	chosen.Set(1)
	m.registry.MustRegister(chosen)
}

func answers(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"code"})
}

// counted counts a handler's answers by code, as kube-proxy does.
func counted(answers *prometheus.CounterVec, handler http.HandlerFunc) http.HandlerFunc {
	return promhttp.InstrumentHandlerCounter(answers, handler)
}
