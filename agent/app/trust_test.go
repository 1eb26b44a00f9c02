package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/agent/internal/client"
	"github.com/fairlead/fairlead/agent/internal/testca"
)

// newTrusted is a controller with TLS that takes one token.
func newTrusted(t *testing.T, ca *testca.CA, token string) *controller {
	t.Helper()
	certificates := []tls.Certificate{ca.Server(t, client.ServerName)}
	return newController(t,
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: certificates})),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if headers, _ := metadata.FromIncomingContext(s.Context()); strings.Join(headers.Get("authorization"), "") != "Bearer "+token {
				return status.Error(codes.Unauthenticated, "token is not good")
			}
			return next(srv, s)
		}))
}

// apiServer answers every request with a ConfigMap.
func apiServer(t *testing.T, ca *testca.CA, data map[string]string) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/fairlead-system/configmaps/fairlead-controllers" || r.Header.Get("Authorization") != "Bearer pod" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "ConfigMap", "data": data})
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server(t, "127.0.0.1")}}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func inFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestBootstrap: an agent that is told of nothing but an API server finds, trusts and follows a controller; the next one
// does so when the API server is away; and a CA in a file needs none at all.
func TestBootstrap(t *testing.T) {
	apiCA, ca := testca.New(t), testca.New(t)
	c, d := newTrusted(t, ca, "agent"), &tables{}
	api := apiServer(t, apiCA, map[string]string{"controllers": c.address, "ca.crt": ca.PEM()})
	cfg := testConfig(t, c, d)
	cfg.Controllers, cfg.Insecure = nil, false
	cfg.Trust.APIServers = []string{api.Listener.Addr().String()}
	cfg.Trust.APIServerTokenFile, cfg.Trust.APIServerCAFile, cfg.Trust.TokenFile = inFile(t, "pod\n"), inFile(t, apiCA.PEM()), inFile(t, "agent\n")
	for _, away := range []bool{false, true} {
		if away {
			api.Close()
		}
		a := startAgent(t, cfg)
		if r := c.send(t, someTable); r.GetError() != "" || d.text(t) != someTable {
			t.Errorf("report %v", r)
		}
		_, body := get(t, a.Metrics, "/metrics")
		if want := map[bool]string{false: `fairlead_lookups_total{result="answered"} 1`, true: `fairlead_lookups_total{result="answered"} 0`}[away]; !strings.Contains(body, want) {
			t.Errorf("/metrics lacks %s", want)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		<-c.ended
	}
	cfg.Controllers, cfg.StateDir = []string{c.address}, t.TempDir()
	cfg.Trust.APIServers, cfg.Trust.CAFile = nil, inFile(t, ca.PEM())
	startAgent(t, cfg)
	if r := c.send(t, someTable); r.GetError() != "" {
		t.Errorf("report %v", r)
	}
}

// TestAFileIsMissing: an agent whose token or CA is not there says which, and goes on trying.
func TestAFileIsMissing(t *testing.T) {
	ca := testca.New(t)
	c := newTrusted(t, ca, "agent")
	for flag, spoil := range map[string]func(*Trust){
		"--token-file: read token: open /nonexistent": func(trust *Trust) { trust.TokenFile = "/nonexistent" },
		"--controller-ca-file: open /nonexistent":     func(trust *Trust) { trust.CAFile = "/nonexistent" },
	} {
		cfg, log := testConfig(t, c, &tables{}), &lines{has: make(chan struct{}), want: flag}
		cfg.Insecure, cfg.Logger = false, slog.New(slog.NewTextHandler(log, nil))
		cfg.Trust.CAFile, cfg.Trust.TokenFile = inFile(t, ca.PEM()), inFile(t, "agent")
		spoil(&cfg.Trust)
		a := startAgent(t, cfg)
		select {
		case <-log.has:
		case <-time.After(20 * time.Second):
			t.Errorf("never said: %s", flag)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	}
}

// lines waits for a line that contains want.
type lines struct {
	want string
	has  chan struct{}
	done bool
}

func (l *lines) Write(p []byte) (int, error) { // a slog.Handler writes one line at a time
	if !l.done && strings.Contains(string(p), l.want) {
		l.done = true
		close(l.has)
	}
	return len(p), nil
}

// TestClusterIPIsNoAPIServer: what a Pod's environment calls the API server is one of our own virtual IPs.
func TestClusterIPIsNoAPIServer(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	cfg := Defaults()
	cfg.NodeName, cfg.Trust.APIServers = "n1", []string{"10.96.0.1:443"}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), `--apiservers "10.96.0.1:443": is the cluster IP of Service kubernetes`) {
		t.Errorf("error %v", err)
	}
	cfg.Trust.APIServers = []string{"192.0.2.1:6443"}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// TestGivenCredentials go before all that is configured.
func TestGivenCredentials(t *testing.T) {
	ca := testca.New(t)
	c := newTrusted(t, ca, "given")
	cfg := testConfig(t, c, &tables{})
	cfg.Insecure, cfg.PerCall = false, given{}
	cfg.Credentials = credentials.NewTLS(&tls.Config{RootCAs: ca.Pool(), ServerName: client.ServerName})
	startAgent(t, cfg)
	if r := c.send(t, someTable); r.GetError() != "" {
		t.Errorf("report %v", r)
	}
	cfg.Insecure = true
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "--insecure: contradicts TLS credentials") {
		t.Errorf("error %v", err)
	}
}

type given struct{}

func (given) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer given"}, nil
}

func (given) RequireTransportSecurity() bool { return true }
