package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/controller/internal/brake"
	"github.com/fairlead/fairlead/controller/internal/compile"
	"github.com/fairlead/fairlead/controller/internal/kube"
	"github.com/fairlead/fairlead/controller/internal/observe"
	"github.com/fairlead/fairlead/controller/internal/publish"
	"github.com/fairlead/fairlead/controller/internal/table"
)

// Run is the controller. It serves until ctx ends, which is no error, or something fails that waiting cannot mend. An API
// server that is away is waited for.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	api, err := newClients(cfg, cfg.Logger)
	if err != nil {
		return err
	}
	l, err := listen(ctx, cfg)
	if err != nil {
		return err
	}
	defer l.close()
	p, err := assemble(ctx, cfg, api)
	if err != nil {
		return err
	}
	cfg.Logger.InfoContext(ctx, "fairlead-controller starts", slog.String("version", cfg.Version), slog.String("endpoints", cfg.Endpoints),
		slog.String("server", api.watch.Host), slog.String("grpc", l.grpc.Addr().String()), slog.String("http", l.http.Addr().String()),
		slog.Uint64("epoch", p.store.Epoch()))
	if cfg.Listening != nil {
		cfg.Listening(Addresses{GRPC: l.grpc.Addr(), HTTP: l.http.Addr()})
	}
	return p.run(ctx, cfg, l)
}

// parts are the stages, joined.
type parts struct {
	logger    *slog.Logger
	api       *clients
	registry  *prometheus.Registry
	objects   *kube.Objects
	watch     func(context.Context) error
	feed      *kube.Feed
	store     *table.Store
	observer  *observe.Observer
	publisher *publish.Publisher // nil with --endpoints=read
	events    *publish.Events
	trust     *trust
	owner     *owner
	brake     *brake.Brake
}

// assemble makes the stages; nothing runs yet.
func assemble(ctx context.Context, cfg Config, api *clients) (*parts, error) {
	p := &parts{
		logger: cfg.Logger, api: api, registry: prometheus.NewRegistry(),
		// Microseconds since 1970 grow from one author to the next, as long as clocks agree better than a start takes.
		store: table.NewStore(uint64(time.Now().UnixMicro()), table.Options{}), //nolint:gosec // positive
	}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	writes := cfg.Endpoints == EndpointsWrite
	var err error
	if p.events, err = publish.NewEvents(ctx, api.write); err != nil {
		return nil, err
	}
	if p.objects, p.watch, err = kube.Watch(ctx, kube.WatchConfig{REST: api.watch, Pods: writes, Agents: cfg.agentPods(), Logger: cfg.Logger}); err != nil {
		return nil, fmt.Errorf("prepare watches: %w", err)
	}
	if p.observer, err = observe.New(observe.Config{Tables: p.store, Registry: p.registry, Watched: p.objects.Count, Nodes: p.objects.NodeNames}); err != nil {
		return nil, fmt.Errorf("make observer: %w", err)
	}
	if writes {
		p.publisher, err = publish.New(publish.Config{
			Reader: p.objects, Client: api.write, Events: p.events, Logger: cfg.Logger, Registry: p.registry,
			MaxEndpointsPerSlice: cfg.MaxEndpointsPerSlice, Workers: cfg.PublishWorkers, BatchPeriod: cfg.BatchPeriod,
		})
		if err != nil {
			return nil, fmt.Errorf("make publisher: %w", err)
		}
	}
	metrics, err := newPipelineMetrics(p.registry)
	if err != nil {
		return nil, err
	}
	if p.trust, err = newTrust(cfg, api, p.objects); err != nil {
		return nil, err
	}
	p.owner = newOwner(cfg, p, metrics)
	p.brake, err = newBrake(cfg, p, &pipeline{
		Compiler: compile.New(cfg.compile()), owner: p.owner, objects: p.objects, publisher: p.publisher, events: p.events,
		published: p.observer.Published, gone: p.observer.Forget, metrics: metrics, logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	p.feed = kube.NewFeed(kube.FeedConfig{
		Objects: p.objects, Derived: publish.Derived(), Logger: cfg.Logger,
		OutageShare: cfg.NodeOutageShare, SetOutage: metrics.setOutage,
		Sink: p.brake,
	})
	return p, nil
}

// run lets the stages work until ctx ends.
func (p *parts) run(ctx context.Context, cfg Config, l *listeners) error {
	server, err := newStream(cfg, p)
	if err != nil {
		return fmt.Errorf("make stream: %w", err)
	}
	keeper, err := p.trust.directory(p, l, server)
	if err != nil {
		return err
	}
	p.owner.known = keeper.Known()
	asked := ctx
	group, ctx := errgroup.WithContext(ctx)
	p.trust.run(ctx, group)
	group.Go(func() error { return keeper.Run(ctx) })
	group.Go(func() error {
		p.brake.Run(ctx)
		return nil
	})
	group.Go(func() error { return serveHTTP(ctx, newHTTP(p.registry, p), l.http) })
	group.Go(func() error { return serveGRPC(ctx, p.trust, l.grpc, server) })
	group.Go(func() error { return p.watch(ctx) })
	group.Go(func() error { return p.feed.Run(ctx) })
	group.Go(func() error { return p.elect(ctx, cfg) })
	if err := group.Wait(); err != nil && asked.Err() == nil { // what ends in the middle of its start may complain
		return err
	}
	p.logger.InfoContext(ctx, "fairlead-controller ends")
	return nil
}

// serving reports whether agents get tables: this replica has seen the whole cluster, and may show what it computed.
func (p *parts) serving() bool {
	select {
	case <-p.feed.Synced():
		return p.owner.published.Load()
	default:
		return false
	}
}

// elect takes part in the election, once this replica has seen everything, and writes while it leads.
func (p *parts) elect(ctx context.Context, cfg Config) error {
	select {
	case <-p.feed.Synced():
	case <-ctx.Done():
		return nil
	}
	identity, err := identity(cfg)
	if err != nil {
		return err
	}
	election := publish.Election{
		Client: p.api.lease.CoordinationV1(), Namespace: cfg.LeaseNamespace, Name: cfg.LeaseName, Identity: identity,
		Duration: cfg.LeaseDuration, Renew: cfg.LeaseRenew, Retry: cfg.LeaseRetry, Logger: cfg.Logger,
	}
	return election.Run(ctx, func(ctx context.Context) {
		p.api.open(ctx)
		p.trust.leading.Store(true)
		defer p.trust.leading.Store(false)
		p.events.Lead(true)
		defer p.events.Lead(false)
		if p.publisher == nil {
			<-ctx.Done()
			return
		}
		if err := p.publisher.Lead(ctx); err != nil && ctx.Err() == nil {
			p.logger.ErrorContext(ctx, "publishing failed, waiting for the next election", slog.Any("err", err))
		}
	})
}

func identity(cfg Config) (string, error) {
	if cfg.Identity != "" {
		return cfg.Identity, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find host name: %w", err)
	}
	return fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano()), nil
}
