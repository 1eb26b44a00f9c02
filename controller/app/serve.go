package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/controller/internal/observe"
	"github.com/fairlead/fairlead/controller/internal/publish"
	"github.com/fairlead/fairlead/controller/internal/stream"
	"github.com/fairlead/fairlead/controller/internal/table"
	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

// Times that a shutdown may take: streams end first, spread, then the rest is cut off.
const (
	drainTimeout    = 5 * time.Second
	shutdownTimeout = 2 * time.Second
)

// listeners are taken before anything else starts, so that a port in use is the first thing one hears of.
type listeners struct{ grpc, http net.Listener }

func listen(ctx context.Context, cfg Config) (*listeners, error) {
	var config net.ListenConfig
	open := func(flag, address string) (net.Listener, error) {
		l, err := config.Listen(ctx, "tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("%s %s: the port is in use; stop whoever has it or choose another", flag, address)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", flag, address, err)
		}
		return l, nil
	}
	l := &listeners{}
	var err error
	if l.grpc, err = open("--grpc-address", cfg.GRPCAddress); err != nil {
		return nil, err
	}
	if l.http, err = open("--http-address", cfg.HTTPAddress); err != nil {
		return nil, errors.Join(err, l.grpc.Close())
	}
	return l, nil
}

func (l *listeners) close() {
	// Closing again what a server has closed is an error without meaning.
	_, _ = l.grpc.Close(), l.http.Close()
}

// newStream joins the store, the stream and the observer.
func newStream(cfg Config, parts *parts) (*stream.Server, error) {
	return stream.NewServer(stream.Config{
		Epoch: parts.store.Epoch, Version: cfg.Version, Heartbeat: cfg.HeartbeatInterval, Log: parts.logger,
		Synced:    parts.serving,
		Behind:    parts.store.Behind,
		Nodes:     func() int { return parts.store.Stats().Nodes },
		Authorize: parts.trust.authorize,
		Admitted:  parts.trust.guard.Admitted,
		Refused:   parts.trust.guard.Refused,
		Follow: func(node string, held *fairleadv1.Held) stream.Follower {
			return parts.store.Follow(node, held)
		},
		FollowAll: func(held *fairleadv1.Held) (stream.Follower, error) {
			if t := parts.leading.Load(); t == nil || parts.store.Epoch() != t.epoch {
				return nil, stream.ErrNotLeading()
			}
			return parts.store.FollowAll(held), nil
		},
		AuthorizeReplica: parts.trust.authorizeReplica,
		Observe: func(a stream.Agent) stream.Session {
			if !parts.store.Exists(a.Node) {
				parts.logger.Warn("an agent serves a Node that the API server does not have: check its --node-name",
					slog.String("node", a.Node), slog.String("remote", a.Remote))
			}
			return newFailing(parts.observer.Connected(observe.Agent(a)), parts.events, a.Node)
		},
		Notice: func(node string, n *fairleadv1.Notice) {
			notice(parts.leading.Load(), parts.events, nodeNotice{node, n})
		},
	})
}

var (
	_ stream.Follower = (*table.Follower)(nil)
	_ stream.Follower = (*table.Replica)(nil)
)

type nodeNotice struct {
	node string
	*fairleadv1.Notice
}

// notice turns what an agent observed into an Event on the Service, or on the agent's Node. One that follows does not know the
// Service's UID, and has the Event said by itself, should it lead.
func notice(leading *term, events *publish.Events, n nodeNotice) {
	if n.GetName() == "" {
		events.Warn(publish.NodeRef(n.node), n.GetReason(), n.GetMessage())
		return
	}
	key := types.NamespacedName{Namespace: n.GetNamespace(), Name: n.GetName()}
	note := "node " + n.node + ": " + n.GetMessage()
	if leading == nil {
		events.Warn(publish.ServiceRef(key, ""), n.GetReason(), note)
	} else if svc, ok := leading.objects.Service(key); ok {
		events.Service(svc, n.GetReason(), note)
	}
}

// serveGRPC serves agents until ctx ends, and ends their streams in good order.
func serveGRPC(ctx context.Context, t *trust, l net.Listener, s *stream.Server) error {
	server := grpc.NewServer(append(stream.ServerOptions(), grpc.Creds(t.credentials), grpc.InTapHandle(t.guard.Tap))...)
	fairleadv1.RegisterForwardingServer(server, s)
	drained := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(drained)
		drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		// Streams of agents that do not read are cut off by Stop.
		_ = s.Drain(drainCtx)
		server.Stop()
	})
	if err := server.Serve(t.guard.Listener(l)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve agents: %w", err)
	}
	<-drained
	return nil
}

// newHTTP serves what people and their tools ask.
func newHTTP(cfg Config, parts *parts) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if parts.serving() {
			answer(w, http.StatusOK, "ok")
		} else {
			answer(w, http.StatusServiceUnavailable, "there are no tables yet: the first lists from the API server are not complete, no leader answers, or the tables are frozen")
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(parts.registry, promhttp.HandlerOpts{Registry: parts.registry}))
	mux.Handle("GET /debug/fairlead/", parts.observer.Handler())
	mux.HandleFunc("GET /debug/fairlead/explain", parts.serveExplain)
	serveAdmin(mux, cfg)
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
}

func answer(w http.ResponseWriter, code int, text string) {
	w.WriteHeader(code)
	// An error here is a client that went away.
	_, _ = fmt.Fprintln(w, text)
}

func serveHTTP(ctx context.Context, server *http.Server, l net.Listener) error {
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(stopped)
		shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(shutdownCtx) != nil {
			_ = server.Close()
		}
	})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	<-stopped
	return nil
}
