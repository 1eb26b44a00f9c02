package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/controller/internal/compile"
	"github.com/fairlead/fairlead/controller/internal/kube"
	"github.com/fairlead/fairlead/controller/internal/publish"
	"github.com/fairlead/fairlead/controller/internal/table"
)

// term is what a replica has while it leads, and loses with it: the watches, what was seen by them, and what was made of it.
type term struct {
	epoch   uint64
	objects *kube.Objects
	feed    *kube.Feed
}

// lead watches the API server, authors the tables and writes, until ctx ends; agents are served meanwhile by the tables that
// there are. It returns when all of it has ended.
func (p *parts) lead(ctx context.Context, cfg Config, won publish.Term) error {
	t := &term{epoch: won.Epoch}
	var watch func(context.Context) error
	var err error
	t.objects, watch, err = kube.Watch(ctx, kube.WatchConfig{REST: p.api.watch, Pods: p.publisher != nil, Agents: cfg.agentPods(), Logger: cfg.Logger})
	if err != nil {
		return fmt.Errorf("prepare watches: %w", err)
	}
	pipeline := &pipeline{
		Compiler: compile.New(cfg.compile()), owner: p.owner, objects: t.objects, publisher: p.publisher, events: p.events,
		agents: func() { p.setAgents(cfg, t) }, published: p.observer.Published, gone: p.observer.Forget, metrics: p.metrics, logger: cfg.Logger,
	}
	brake := newBrake(cfg, p, t, pipeline)
	t.feed = kube.NewFeed(kube.FeedConfig{
		Objects: t.objects, Derived: publish.Derived(), Logger: cfg.Logger,
		OutageShare: cfg.NodeOutageShare, SetOutage: p.metrics.setOutage, Sink: brake,
	})
	p.store.Lead(won.Epoch)
	p.owner.begin((&succession{cfg: cfg, store: p.store, list: p.list(cfg, t), again: p.again}).settled)
	p.leading.Store(t)
	p.metrics.leading.Set(1)
	defer func() {
		p.leading.Store(nil)
		p.metrics.leading.Set(0)
		p.server.EndReplicas()
		p.owner.say(0)
		p.metrics.setOutage(false)
		p.held(0, 0)
	}()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return watch(ctx) })
	group.Go(func() error { return t.feed.Run(ctx) })
	group.Go(func() error {
		brake.Run(ctx)
		return nil
	})
	if cfg.agentPods() != nil {
		group.Go(func() error { return p.watchAgents(ctx, cfg, t) })
	}
	group.Go(func() error { return p.write(ctx, t, won) })
	return group.Wait()
}

// write lets writes through until ctx ends, once everything was seen.
func (p *parts) write(ctx context.Context, t *term, won publish.Term) error {
	select {
	case <-t.feed.Synced():
	case <-ctx.Done():
		return nil
	}
	p.api.open(ctx, won.Current)
	p.trust.leading.Store(true)
	defer p.trust.leading.Store(false)
	p.events.Lead(true)
	defer p.events.Lead(false)
	if p.publisher == nil {
		<-ctx.Done()
		return nil
	}
	return p.publisher.Lead(ctx, t.objects)
}

// watchAgents keeps the agents' Pods in the Store, from where replicas get them.
func (p *parts) watchAgents(ctx context.Context, cfg Config, t *term) error {
	wake := make(chan struct{}, 1)
	err := t.objects.OnAgents(ctx, cfg.agentPods().Namespace, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("watch agents' Pods: %w", err)
	}
	select {
	case <-t.feed.Synced(): // the first tables bring the first Pods
	case <-ctx.Done():
		return nil
	}
	for {
		p.setAgents(cfg, t)
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (p *parts) setAgents(cfg Config, t *term) {
	if agents := cfg.agentPods(); agents != nil {
		p.store.SetAgents(t.objects.Agents(agents.Namespace))
	}
}

// again has the Feed of the present term, if there is one, commit anew.
func (p *parts) again() {
	if t := p.leading.Load(); t != nil {
		t.feed.Again()
	}
}

// watched counts what is watched at the API server.
func (p *parts) watched() map[string]int {
	if t := p.leading.Load(); t != nil {
		return t.objects.Count()
	}
	return nil
}

// list returns a maker of all tables from a fresh list.
func (p *parts) list(cfg Config, t *term) func(context.Context) (table.Image, error) {
	return func(ctx context.Context) (table.Image, error) {
		fresh, err := kube.List(ctx, p.api.lease, p.publisher != nil)
		if err != nil {
			return table.Image{}, err
		}
		c := compile.New(cfg.compile())
		for _, n := range fresh.Nodes() {
			c.SetNode(n)
		}
		for _, svc := range fresh.Services() {
			eps, _ := t.feed.EndpointsIn(fresh, svc)
			c.SetService(svc, eps)
		}
		return table.Image{}.With(c.Flush().Updates), nil
	}
}

// following takes a leader's revisions for a replica.
type following struct {
	*table.Store
	parts *parts
}

// Adopt implements mirror.Store.
func (f following) Adopt(step table.Step) error {
	before := f.Revision()
	f.parts.owner.remember(time.Now())
	if err := f.Store.Adopt(step); err != nil {
		return err
	}
	f.parts.owner.changed(step.Number != before)
	f.parts.observer.Published(step.Number, step.Cause)
	f.parts.logger.Debug("revision adopted", slog.Uint64("revision", step.Number), slog.Uint64("epoch", step.Epoch))
	return nil
}
