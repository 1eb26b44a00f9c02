package app

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/agent/dataplane"
	"github.com/fairlead/fairlead/agent/internal/client"
	"github.com/fairlead/fairlead/agent/internal/conntrack"
	"github.com/fairlead/fairlead/agent/internal/healthcheck"
	"github.com/fairlead/fairlead/agent/internal/hostinfo"
	"github.com/fairlead/fairlead/agent/internal/proxy"
	"github.com/fairlead/fairlead/agent/internal/store"
)

// The bounds of the back-off after the kernel refused.
const (
	retryBase = 100 * time.Millisecond
	retryMax  = 5 * time.Second
)

// Run runs an agent in the current network namespace until ctx ends, and returns nil then. It first binds its ports and
// looks whether it can program the kernel; an error there leaves everything as it was. Rules stay when it returns.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	sockets, err := takePorts(ctx, cfg)
	if ctx.Err() != nil {
		sockets.close()
		return nil
	}
	if err != nil {
		return err
	}
	defer sockets.close()
	tables := store.New()
	a := agent{cfg: cfg, tables: tables, health: healthcheck.NewHealth(time.Now, 2*cfg.SyncPeriod), metrics: newMetrics(cfg, tables)}
	host, err := a.openHost(ctx)
	if err != nil {
		return err
	}
	defer host.close()
	mode := host.dataplane.Name()
	a.metrics.chose(cfg, mode)
	way, taken := a.findWay(), &outlet{Store: tables}
	checkpoints := a.openCheckpoints(taken)
	follower, err := a.newClient(mode, way)
	if err != nil {
		return err
	}
	host.steps = append(host.steps, checkpoints, newPredecessor(cfg, taken))
	door := newDoor(a, host)
	loop, err := a.newLoop(door, taken, follower)
	if err != nil {
		return err
	}
	cfg.Logger.Info("agent starts", slog.String("agent_version", cfg.Version), slog.String("node", cfg.NodeName), slog.String("mode", mode))
	group, ctx := errgroup.WithContext(ctx)
	sockets.serve(ctx, group, a.probes(), a.facts(mode))
	if socket := door.open(); socket != nil {
		group.Go(func() error { return serveHTTP(ctx, socket, door.handler(), adminTimeout) })
	}
	group.Go(func() error { loop.Run(ctx); return nil })
	group.Go(func() error { host.thrift.run(ctx); return nil })
	group.Go(func() error { checkpoints.run(ctx); return nil })
	group.Go(func() error { way.run(ctx); return nil })
	group.Go(func() error { follower.Run(ctx); return nil })
	if cfg.Listening != nil {
		cfg.Listening(sockets.addresses())
	}
	err = group.Wait()
	cfg.Logger.Info("agent stops, the kernel goes on as it is")
	return err
}

// agent is what the stages of one agent share.
type agent struct {
	cfg     Config
	tables  *store.Store
	health  *healthcheck.Health
	metrics *metrics
}

func (a agent) newClient(mode string, w way) (*client.Client, error) {
	return client.New(client.Config{
		Directory: w.directory, Node: a.cfg.NodeName, Version: a.cfg.Version, Mode: mode,
		Credentials: w.credentials, PerCall: w.perCall, Store: inlet{a.tables},
		Metrics: client.NewMetrics(a.metrics.registry), Logger: a.cfg.Logger,
	})
}

func (a agent) newLoop(d door, taken *outlet, follower *client.Client) (*proxy.Loop, error) {
	return proxy.New(proxy.Config{
		Dataplane: d.host.dataplane, Source: taken, Steps: d.host.steps, Due: d.host.moved, Inspect: d.inspect, Health: a.health,
		Report: func(o proxy.Outcome) {
			d.told.Store(&o)
			follower.Report(reportOf(o))
		},
		Metrics: proxy.NewMetrics(a.metrics.registry), Logger: a.cfg.Logger,
		AuditInterval: a.cfg.AuditInterval, SyncPeriod: a.cfg.SyncPeriod, ResyncInterval: a.cfg.ResyncInterval,
		RetryBase: retryBase, RetryMax: retryMax,
	})
}

// host is what an agent does in this host.
type host struct {
	dataplane dataplane.Interface
	// rules are those in force.
	rules  Rules
	steps  []proxy.Step
	thrift *thrift
	// moved delivers a value when addresses of this host may have changed; nil where nobody looks.
	moved <-chan struct{}
	close func()
}

// openHost finds the dataplane, and sets the sysctls that forwarding needs. With a Dataplane of the Config it does nothing.
func (a agent) openHost(ctx context.Context) (host, error) {
	cfg, thrift := a.cfg, newThrift()
	if cfg.Dataplane != nil {
		return host{dataplane: cfg.Dataplane, rules: cfg.Rules.in(cfg.Dataplane.Name()), thrift: thrift, close: func() {}}, nil
	}
	if err := checkPrivileges(); err != nil {
		return host{}, err
	}
	sysctls := hostinfo.ProcSys{Root: cfg.ProcSys}
	liberal, err := hostinfo.TCPBeLiberal(sysctls)
	if err != nil {
		return host{}, err
	}
	facts := hostFacts{keepInvalid: liberal || cfg.Conntrack.TCPBeLiberal, procSys: cfg.ProcSys, logger: cfg.Logger}
	chosen, err := cfg.Rules.choose(ctx, facts, cfg.Rules.candidates())
	if err != nil {
		return host{}, err
	}
	nodePorts, err := hostinfo.ParseNodePortAddresses(cfg.Rules.nodePortAddresses(chosen.backend.Name()))
	if err != nil {
		return host{}, err
	}
	rules := cfg.Rules.in(chosen.name)
	rules.KeepInvalid = facts.keepInvalid
	prepare(cfg, sysctls)
	services := healthcheck.NewServices(healthcheck.Config{
		Forwarding: a.health.Forwarding,
		Answers: func(local netip.Addr) bool {
			v, ok := a.tables.Current()
			return ok && nodePorts.Contains(local, v.Table.Node().Addresses)
		},
	})
	watching, stop := context.WithCancel(ctx)
	moved := watchAddresses(watching, cfg.Logger)
	return host{
		dataplane: chosen.backend,
		rules:     rules,
		steps: []proxy.Step{
			&flows{addresses: hostinfo.Addresses, nodePorts: nodePorts, deleted: a.metrics.deletedFlows, clean: conntrack.Cleaner{}.Clean},
			&checkPorts{services: services},
			newSuccession(chosen.mode, facts),
			newSubstitute(cfg.Rules.Mode, chosen.name),
			thrift,
		},
		thrift: thrift,
		moved:  moved,
		close:  func() { stop(); services.Close() },
	}, nil
}

// watchAddresses is hostinfo.WatchAddresses where the kernel lets us; else new addresses are found with the next sync period.
func watchAddresses(ctx context.Context, logger *slog.Logger) <-chan struct{} {
	moved, err := hostinfo.WatchAddresses(ctx)
	if err != nil {
		logger.Warn("new addresses of this host are noticed late", slog.Any("error", err))
	}
	return moved
}

// prepare sets sysctls. What cannot be set is said and no reason to stop: in a container /proc/sys is read-only unless
// --proc-sys names another place, and whoever runs it may have set them.
func prepare(cfg Config, sysctls hostinfo.Sysctls) {
	forwarding, err := hostinfo.Ensure(sysctls, hostinfo.Forwarding())
	if err != nil {
		cfg.Logger.Warn("forwarding may not work", slog.Any("error", err))
	}
	limits, err := cfg.Conntrack.Apply(sysctls, hostinfo.Cores())
	if err != nil {
		cfg.Logger.Warn("connection tracking keeps the kernel's limits", slog.Any("error", err))
	}
	// Forwarding itself is not given back: Pods need it, whoever serves their Services.
	if err := rememberFormer(cfg.StateDir, limits); err != nil {
		cfg.Logger.Warn("a clean-up will leave sysctls as they are", slog.Any("error", err))
	}
	for _, s := range append(forwarding, limits...) {
		cfg.Logger.Info("sysctl set", slog.String("sysctl", s.Name), slog.String("value", s.Value))
	}
}
