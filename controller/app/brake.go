package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/brake"
	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/controller/internal/kube"
)

// Brake says how much may go at once before a fresh list has to confirm it.
type Brake struct {
	// Share of all endpoints, and of all Services (0 to 1); 1 switches the brake off.
	Share float64
	// Floor may always go.
	Floor int
}

func (b *Brake) bind(fs *pflag.FlagSet) {
	fs.Float64Var(&b.Share, "brake-share", b.Share, "`share` of all endpoints, or of all Services (0 to 1): if more go within seconds, whatever the cause, they stay in use until a fresh list from the API server confirms it; 1 switches this off, the annotation fairlead.io/brake: \"off\" does so for one Service")
	fs.IntVar(&b.Floor, "brake-floor", b.Floor, "`number` of endpoints, or of Services, that may always go")
}

func (b Brake) validate(check func(ok bool, format string, args ...any)) {
	check(b.Share > 0 && b.Share <= 1, "--brake-share %v: want more than 0, up to 1", b.Share)
	check(b.Floor >= 0, "--brake-floor %d: want 0 or more", b.Floor)
}

// brakeMetrics tell what is being held.
type brakeMetrics struct{ endpoints, services prometheus.Gauge }

func newBrakeMetrics(registry prometheus.Registerer) (*brakeMetrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &brakeMetrics{
		endpoints: gauge("fairlead_held_endpoints", "Endpoints that stay in use until a fresh list confirms that so many are gone at once."),
		services:  gauge("fairlead_held_services", "Deleted Services that stay in use until a fresh list confirms that so many are gone at once."),
	}
	for _, g := range []prometheus.Gauge{m.endpoints, m.services} {
		if err := registry.Register(g); err != nil {
			return nil, fmt.Errorf("register brake metrics: %w", err)
		}
	}
	return m, nil
}

// held tells how much is held.
func (p *parts) held(eps, services int) {
	p.brakes.endpoints.Set(float64(eps))
	p.brakes.services.Set(float64(services))
	if eps+services > 0 {
		p.events.Warn(p.owner.subject, "MassRemovalHeld", fmt.Sprintf("%d endpoints and %d Services would have gone at once: they stay in use until a fresh list confirms it", eps, services))
	}
}

// newBrake puts the brake in front of a term's pipeline.
func newBrake(cfg Config, p *parts, t *term, next kube.Sink) *brake.Brake {
	return brake.New(brake.Config{
		Next: next, Limits: brake.Limits(cfg.Brake), Logger: cfg.Logger, Held: p.held,
		Fresh: func(ctx context.Context) (brake.Lookup, error) {
			fresh, err := kube.List(ctx, p.api.lease, p.publisher != nil)
			if err != nil {
				return nil, err
			}
			return t.lookup(fresh), nil
		},
		Again: func(keys ...types.NamespacedName) { t.feed.Again(keys...) },
	})
}

// lookup finds the endpoints of Services in a fresh list.
func (t *term) lookup(fresh *kube.Objects) brake.Lookup {
	return func(key types.NamespacedName) ([]endpoints.Endpoint, bool) {
		svc, ok := fresh.Service(key)
		if !ok {
			return nil, false
		}
		eps, _ := t.feed.EndpointsIn(fresh, svc)
		return eps, true
	}
}
