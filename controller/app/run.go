package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/controller/internal/kube"
	"github.com/fairlead/fairlead/controller/internal/mirror"
	"github.com/fairlead/fairlead/controller/internal/observe"
	"github.com/fairlead/fairlead/controller/internal/publish"
	"github.com/fairlead/fairlead/controller/internal/stream"
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
	p, err := assemble(ctx, cfg, api, l)
	if err != nil {
		return err
	}
	cfg.Logger.InfoContext(ctx, "fairlead-controller starts", slog.String("version", cfg.Version), slog.String("endpoints", cfg.Endpoints),
		slog.String("server", api.watch.Host), slog.String("grpc", l.grpc.Addr().String()), slog.String("http", l.http.Addr().String()))
	if cfg.Listening != nil {
		cfg.Listening(Addresses{GRPC: l.grpc.Addr(), HTTP: l.http.Addr()})
	}
	return p.run(ctx, cfg, l)
}

// parts are what every replica has, whether it leads or follows.
type parts struct {
	logger    *slog.Logger
	api       *clients
	registry  *prometheus.Registry
	store     *table.Store
	observer  *observe.Observer
	publisher *publish.Publisher // nil with --endpoints=read
	events    *publish.Events
	metrics   *pipelineMetrics
	brakes    *brakeMetrics
	trust     *trust
	owner     *owner
	server    *stream.Server
	mirror    *mirror.Mirror
	// self is where this replica serves agents and, while it leads, other replicas.
	self string
	// leading is the present term; nil while another replica leads, or none.
	leading atomic.Pointer[term]
}

// assemble makes the stages; nothing runs yet.
func assemble(ctx context.Context, cfg Config, api *clients, l *listeners) (*parts, error) {
	p := &parts{
		logger: cfg.Logger, api: api, registry: prometheus.NewRegistry(), store: table.NewStore(0, table.Options{}),
	}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	if p.self, err = cfg.Trust.advertised(l.grpc.Addr(), api.watch.Host); err != nil {
		return nil, err
	}
	if p.events, err = publish.NewEvents(ctx, api.write); err != nil {
		return nil, err
	}
	if p.observer, err = observe.New(observe.Config{Tables: p.store, Registry: p.registry, Watched: p.watched, Nodes: p.store.Nodes}); err != nil {
		return nil, fmt.Errorf("make observer: %w", err)
	}
	if cfg.Endpoints == EndpointsWrite {
		p.publisher, err = publish.New(publish.Config{
			Client: api.write, Events: p.events, Logger: cfg.Logger, Registry: p.registry,
			MaxEndpointsPerSlice: cfg.MaxEndpointsPerSlice, Workers: cfg.PublishWorkers, BatchPeriod: cfg.BatchPeriod,
		})
		if err != nil {
			return nil, fmt.Errorf("make publisher: %w", err)
		}
	}
	if p.metrics, err = newPipelineMetrics(p.registry); err != nil {
		return nil, err
	}
	if p.brakes, err = newBrakeMetrics(p.registry); err != nil {
		return nil, err
	}
	if p.trust, err = newTrust(cfg, p); err != nil {
		return nil, err
	}
	p.owner = newOwner(cfg, p, p.metrics)
	if p.server, err = newStream(cfg, p); err != nil {
		return nil, fmt.Errorf("make stream: %w", err)
	}
	p.mirror = mirror.New(mirror.Config{
		Self: p.self, Version: cfg.Version, Credentials: p.trust.towardsLeader, Store: following{p.store, p}, Logger: cfg.Logger,
	})
	return p, nil
}

// run lets the stages work until ctx ends.
func (p *parts) run(ctx context.Context, cfg Config, l *listeners) error {
	keeper := p.trust.directory(p)
	p.owner.known = keeper.Known()
	asked := ctx
	group, ctx := errgroup.WithContext(ctx)
	p.trust.run(ctx, group)
	group.Go(func() error { return keeper.Run(ctx) })
	if cfg.Balance {
		group.Go(func() error { p.server.Balance(ctx); return nil })
	}
	group.Go(func() error { return serveHTTP(ctx, newHTTP(cfg, p), l.http) })
	group.Go(func() error { return serveGRPC(ctx, p.trust, l.grpc, p.server) })
	group.Go(func() error {
		p.mirror.Run(ctx)
		return nil
	})
	group.Go(func() error { return p.elect(ctx, cfg, l) })
	if err := group.Wait(); err != nil && asked.Err() == nil { // what ends in the middle of its start may complain
		return err
	}
	p.logger.InfoContext(ctx, "fairlead-controller ends")
	return nil
}

// serving reports whether agents get tables: there are whole ones, computed here or by a leader.
func (p *parts) serving() bool { return p.owner.published.Load() }

// elect takes part in the election, leads while this replica has won, and follows whoever else does.
func (p *parts) elect(ctx context.Context, cfg Config, l *listeners) error {
	election := publish.Election{
		Client: p.api.lease.CoordinationV1(), Namespace: cfg.LeaseNamespace, Name: cfg.LeaseName, Candidate: p.candidate(cfg, l),
		Duration: cfg.LeaseDuration, Renew: cfg.LeaseRenew, Retry: cfg.LeaseRetry, Logger: cfg.Logger,
		Floor: p.store.Epoch, Observed: p.mirror.SetLeader, Refused: kube.Explain(cfg.Logger),
	}
	return election.Run(ctx, func(ctx context.Context, won publish.Term) {
		if err := p.lead(ctx, cfg, won); err != nil && ctx.Err() == nil {
			p.logger.ErrorContext(ctx, "leading failed, waiting for the next election", slog.Any("err", err))
		}
	})
}

// candidate names this process. Two that listen at one port of one network cannot run at the same time.
func (p *parts) candidate(cfg Config, l *listeners) publish.Candidate {
	process := cfg.Identity
	if process == "" {
		process = fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())
	}
	place := process
	host, hostErr := os.Hostname()
	network, networkErr := os.Readlink("/proc/self/ns/net")
	if hostErr == nil && networkErr == nil {
		sum := sha256.Sum256([]byte(host + " " + network + " " + l.grpc.Addr().String()))
		place = hex.EncodeToString(sum[:8])
	}
	return publish.Candidate{Address: p.self, Place: place, Process: process}
}
