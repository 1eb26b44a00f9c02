package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/stream"
	"github.com/fairlead/fairlead/controller/internal/trust/authority"
	"github.com/fairlead/fairlead/controller/internal/trust/directory"
	"github.com/fairlead/fairlead/controller/internal/trust/serving"
	"github.com/fairlead/fairlead/controller/internal/trust/token"
	"github.com/fairlead/fairlead/proto/fwd"
)

// trust is what proves replicas to agents and agents to replicas, and how they find each other.
type trust struct {
	cfg    Config
	api    *clients
	source *serving.Source
	files  *serving.Files // nil where the CA is our own
	keys   *token.Keys    // nil with --token-review and --insecure
	guard  *stream.Guard
	// bundle is the CA bundle that other replicas are checked against, as PEM; nil where files have it, or before it is known.
	bundle atomic.Pointer[[]byte]
	// leading is true while this replica may write.
	leading atomic.Bool

	credentials credentials.TransportCredentials
	authorize   func(ctx context.Context, node string) error
}

// newTrust makes what the Config asks for.
func newTrust(cfg Config, p *parts) (*trust, error) {
	refusals, err := stream.NewRefusals(p.registry, cfg.Logger, token.Reasons()...)
	if err != nil {
		return nil, fmt.Errorf("make metrics of refusals: %w", err)
	}
	t := &trust{
		cfg: cfg, api: p.api, source: &serving.Source{}, guard: stream.NewGuard(stream.GuardConfig{Refusals: refusals}),
		credentials: cfg.Credentials, authorize: cfg.Authorize,
	}
	if cfg.Trust.CertFile != "" {
		t.files, err = serving.OpenFiles(serving.FilesConfig{
			Cert: cfg.Trust.CertFile, Key: cfg.Trust.KeyFile, CA: cfg.Trust.CAFile, ServerName: authority.ServerName, Logger: cfg.Logger,
		}, t.source, time.Now())
		if err != nil {
			return nil, err
		}
	}
	if t.credentials == nil {
		t.credentials = insecure.NewCredentials()
		if !cfg.Insecure {
			t.credentials = credentials.NewTLS(t.serverTLS())
		}
	}
	switch {
	case t.authorize != nil:
	case cfg.Insecure:
		t.authorize = func(context.Context, string) error { return nil }
	default:
		t.authorize = t.gate(p.store.AgentPod).Authorize
	}
	return t, nil
}

// gate decides by the agents' tokens; pod finds their Pods.
func (t *trust) gate(pod func(name string) (fwd.AgentPod, bool)) *token.Gate {
	namespace, name := t.cfg.Trust.account()
	var signatures token.Signatures
	if t.cfg.Trust.TokenReview {
		signatures = token.NewReview(t.api.lease.AuthenticationV1().TokenReviews(), tokenAudience)
	} else {
		t.keys = token.NewKeys(token.KeysConfig{Get: t.get, Audience: tokenAudience, Logger: t.cfg.Logger})
		signatures = t.keys
	}
	return token.NewGate(token.Config{
		Expected:   token.Expected{Audience: tokenAudience, Namespace: namespace, ServiceAccount: name},
		Signatures: signatures, Now: time.Now,
		Pod: func(_, name string) (uid, node string, ok bool) { // the namespace is the expected one
			p, ok := pod(name)
			return p.UID, p.Node, ok
		},
	})
}

// get fetches what the API server says about its tokens.
func (t *trust) get(ctx context.Context, path string) ([]byte, error) {
	body, err := t.api.lease.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json, */*").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("ask the API server: %w", err)
	}
	return body, nil
}

// directory is what keeps the shared objects up to date.
func (t *trust) directory(p *parts) *directory.Keeper {
	d := directory.Config{
		Client: p.api.lease, Write: p.api.write, Namespace: t.cfg.LeaseNamespace, Self: p.self, Every: t.cfg.Trust.DirectoryPeriod,
		Serving: p.serving, Leading: t.leading.Load,
		APIServers: func() []string { return t.apiServers(p.leading.Load()) },
		Replicas:   p.server.SetControllers,
		Orders:     p.owner.order,
		Logger:     t.cfg.Logger,
	}
	switch {
	case t.files != nil:
		d.Bundle = t.files.Bundle
	case !t.cfg.Insecure && t.cfg.Credentials == nil:
		d.Policy, d.Authority = &authority.Policy{Lifetime: t.cfg.Trust.CALifetime, Overlap: t.cfg.Trust.CAOverlap}, t.renew
	}
	return directory.New(d)
}

// renew has a new certificate served, if one is due.
func (t *trust) renew(s authority.State) {
	now, bundle := time.Now(), s.Bundle()
	t.bundle.Store(&bundle)
	if s.Suits(t.source.Current(), now) {
		return
	}
	c, err := s.Issue(now)
	if err != nil { // the system's random numbers have ended
		t.cfg.Logger.Error("cannot issue a certificate", slog.Any("err", err))
		return
	}
	t.source.Set(c)
}

// run keeps keys and files fresh.
func (t *trust) run(ctx context.Context, group *errgroup.Group) {
	if t.keys != nil {
		group.Go(func() error {
			t.keys.Run(ctx)
			return nil
		})
	}
	if t.files != nil {
		group.Go(func() error {
			t.files.Run(ctx, t.cfg.Trust.DirectoryPeriod)
			return nil
		})
	}
}

// apiServers are the addresses of the API servers, which the Service default/kubernetes has as its endpoints.
func (t *trust) apiServers(leading *term) []string {
	if list := t.cfg.Trust.apiServers(); len(list) > 0 || leading == nil {
		return list
	}
	var list []string
	for _, s := range leading.objects.Slices(types.NamespacedName{Namespace: "default", Name: "kubernetes"}) {
		list = append(list, addressesOf(s)...)
	}
	return list
}

func addressesOf(s *discoveryv1.EndpointSlice) []string {
	var list []string
	for _, port := range s.Ports {
		if port.Port == nil {
			continue
		}
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				list = append(list, net.JoinHostPort(a, strconv.Itoa(int(*port.Port))))
			}
		}
	}
	return list
}
