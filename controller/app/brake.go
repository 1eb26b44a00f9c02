package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/brake"
	"github.com/fairlead/fairlead/controller/internal/endpoints"
	"github.com/fairlead/fairlead/controller/internal/kube"
	"github.com/fairlead/fairlead/controller/internal/trust/directory"
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

// newBrake puts the brake in front of the pipeline.
func newBrake(cfg Config, p *parts, next kube.Sink) (*brake.Brake, error) {
	gauge := func(name, help string) (prometheus.Gauge, error) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		if err := p.registry.Register(g); err != nil {
			return nil, fmt.Errorf("register brake metrics: %w", err)
		}
		return g, nil
	}
	eps, err := gauge("fairlead_held_endpoints", "Endpoints that stay in use until a fresh list confirms that so many are gone at once.")
	if err != nil {
		return nil, err
	}
	services, err := gauge("fairlead_held_services", "Deleted Services that stay in use until a fresh list confirms that so many are gone at once.")
	if err != nil {
		return nil, err
	}
	subject := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: cfg.LeaseNamespace, Name: directory.ConfigMapName}
	return brake.New(brake.Config{
		Next: next, Limits: brake.Limits(cfg.Brake), Logger: cfg.Logger,
		Fresh: p.listed,
		Again: func(keys ...types.NamespacedName) { p.feed.Again(keys...) },
		Held: func(e, s int) {
			eps.Set(float64(e))
			services.Set(float64(s))
			if e+s > 0 {
				p.events.Warn(subject, "MassRemovalHeld", fmt.Sprintf("%d endpoints and %d Services would have gone at once: they stay in use until a fresh list confirms it", e, s))
			}
		},
	}), nil
}

// listed makes a fresh list of everything.
func (p *parts) listed(ctx context.Context) (brake.Lookup, error) {
	fresh, err := kube.List(ctx, p.api.lease, p.publisher != nil)
	if err != nil {
		return nil, err
	}
	return func(key types.NamespacedName) ([]endpoints.Endpoint, bool) {
		svc, ok := fresh.Service(key)
		if !ok {
			return nil, false
		}
		eps, _ := p.feed.EndpointsIn(fresh, svc)
		return eps, true
	}, nil
}
