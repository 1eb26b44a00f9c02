package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/compile"
	"github.com/fairlead/fairlead/controller/internal/kube"
	"github.com/fairlead/fairlead/controller/internal/publish"
	"github.com/fairlead/fairlead/controller/internal/table"
)

// pipeline is what a Feed writes to: changes are compiled, published as one revision, and only then handed on to whoever
// writes at the API server. It is used by the Feed's goroutine alone.
type pipeline struct {
	*compile.Compiler
	owner   *owner
	objects *kube.Objects
	// agents publishes the agents' Pods, before the first tables.
	agents    func()
	publisher *publish.Publisher // nil with --endpoints=read
	events    *publish.Events
	published func(revision uint64, cause time.Time)
	gone      func(node string)
	metrics   *pipelineMetrics
	logger    *slog.Logger
	first     sync.Once
}

var _ kube.Sink = (*pipeline)(nil)

// Commit implements kube.Sink.
func (p *pipeline) Commit(ctx context.Context, round kube.Round) {
	if !p.owner.published.Load() {
		p.owner.await(ctx)
	}
	if p.owner.frozen(ctx) { // the Compiler keeps what is new
		p.publish(ctx, round)
		p.report(round, nil)
		return
	}
	start := time.Now()
	p.first.Do(p.agents)
	out := p.Flush()
	zones := make([]table.NodeZone, 0, len(out.Zones))
	for _, z := range out.Zones {
		zones = append(zones, table.NodeZone(z))
		if z.Gone {
			p.gone(z.Node)
		}
	}
	revision, changed := p.owner.publish(ctx, change{out.Updates, zones, round.Cause})
	took := time.Since(start)
	p.metrics.compile.Observe(took.Seconds())
	if changed {
		p.published(revision, round.Cause)
		p.logger.DebugContext(ctx, "revision published", slog.Uint64("revision", revision), slog.Int("services", len(round.Services)),
			slog.Int("nodes", len(round.Nodes)), slog.Int("audiences", len(out.Updates)), slog.Duration("took", took),
			slog.Duration("since_cause", time.Since(round.Cause)))
	}
	p.publish(ctx, round)
	p.report(round, out.Problems)
}

// publish hands a round on to whoever writes at the API server.
func (p *pipeline) publish(ctx context.Context, round kube.Round) {
	if p.publisher == nil {
		return
	}
	p.publisher.Changed(round.Services)
	if len(round.Nodes) > 0 {
		p.publisher.NodesChanged(ctx)
	}
}

// report tells the owners of Services what is wrong with them.
func (p *pipeline) report(round kube.Round, compiled []compile.Problem) {
	problems := compiled
	for _, key := range round.Services {
		found := round.Problems[key]
		if len(found) == 0 {
			continue
		}
		var uid types.UID
		if svc, ok := p.objects.Service(key); ok {
			uid = svc.UID
		}
		for _, f := range found {
			problems = append(problems, compile.Problem{Namespace: key.Namespace, Name: key.Name, UID: uid, Reason: f.Reason, Message: f.Message})
		}
	}
	for _, problem := range problems {
		p.metrics.problems.WithLabelValues(problem.Reason).Inc()
		p.events.Warn(publish.ServiceRef(types.NamespacedName{Namespace: problem.Namespace, Name: problem.Name}, problem.UID), problem.Reason, problem.Message)
	}
}

// pipelineMetrics tell how long a round takes and what was wrong.
type pipelineMetrics struct {
	compile  prometheus.Histogram
	problems *prometheus.CounterVec
	outage   prometheus.Gauge
	frozen   prometheus.Gauge
	leading  prometheus.Gauge
}

func (m *pipelineMetrics) setOutage(on bool) {
	m.outage.Set(map[bool]float64{true: 1}[on])
}

func newPipelineMetrics(registry prometheus.Registerer) (*pipelineMetrics, error) {
	m := &pipelineMetrics{
		compile: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_compile_seconds", Help: "How long a round of changes took to compile and to publish to the streams.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2, 18),
		}),
		problems: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_problems_total", Help: "Problems found in Services and their endpoints, by the reason of their Event.",
		}, []string{"reason"}),
		outage: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_node_outage", Help: "1 while most Nodes are out of the control plane's reach, and their Pods stay in use.",
		}),
		frozen: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_tables_frozen", Help: "1 while the owner has frozen the tables, 2 while they are rolled back as well.",
		}),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_leading", Help: "1 while this replica leads: it watches the API server, and the tables of all replicas are its own.",
		}),
	}
	for _, c := range []prometheus.Collector{m.compile, m.problems, m.outage, m.frozen, m.leading} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register pipeline metrics: %w", err)
		}
	}
	return m, nil
}
