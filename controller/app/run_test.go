package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	fairleadv1 "github.com/fairlead/fairlead/proto/fairlead/v1"
)

const patience = 20 * time.Second

// awayKubeconfig names an API server at a port where nobody listens.
func awayKubeconfig(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return kubeconfig(t, "http://"+address)
}

func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	return write(t, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u}]
current-context: c
`, server))
}

// logs is a log that can be read while it is written.
type logs struct {
	mu    sync.Mutex // guards text
	text  bytes.Buffer
	lines chan struct{}
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.lines <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// running is a controller in this process.
type running struct {
	Addresses
	log  *logs
	stop func() error
}

func start(t *testing.T, cfg Config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{log: &logs{lines: make(chan struct{}, 1)}}
	listening, done := make(chan Addresses, 1), make(chan error, 1)
	cfg.GRPCAddress, cfg.HTTPAddress = "127.0.0.1:0", "127.0.0.1:0"
	cfg.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	cfg.Listening = func(a Addresses) { listening <- a }
	go func() { done <- Run(ctx, cfg) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return fmt.Errorf("it does not end")
		}
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	select {
	case r.Addresses = <-listening:
	case err := <-done:
		t.Fatalf("Run: %v", err)
	case <-time.After(patience):
		t.Fatal("it does not listen")
	}
	return r
}

func (r *running) get(t *testing.T, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.HTTP.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// until waits for a line in the log.
func (r *running) until(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(r.log.String(), text) {
		select {
		case <-r.log.lines:
		case <-deadline:
			t.Fatalf("log never says %q:\n%s", text, r.log)
		}
	}
}

// TestAPIServerAway: the controller starts, says once what it waits for, and gives nobody a table.
func TestAPIServerAway(t *testing.T) {
	cfg := valid()
	cfg.Kubeconfig = awayKubeconfig(t)
	r := start(t, cfg)
	r.until(t, "API server cannot be reached, waiting for it")
	if code, _ := r.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
	if code, body := r.get(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "first lists") {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, body := r.get(t, "/metrics"); code != http.StatusOK || !strings.Contains(body, "fairlead_revision 0") {
		t.Errorf("metrics: %d", code)
	}
	if code, _ := r.get(t, "/debug/fairlead/status"); code != http.StatusOK {
		t.Errorf("status: %d", code)
	}
	if err := follow(t, r.GRPC); status.Code(err) != codes.Unavailable {
		t.Errorf("Follow: %v, want Unavailable", err)
	}
	if err := r.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, r.log)
	}
}

// TestAPIServerRefuses: what only an administrator can mend is said, and the controller goes on.
func TestAPIServerRefuses(t *testing.T) {
	refuse := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}`)
	}
	for _, c := range []struct {
		name, want string
		serve      http.HandlerFunc
		start      func(http.Handler) *httptest.Server
	}{
		{"no permission", "check the credentials and RBAC of the controller", refuse, httptest.NewServer},
		{"no API server", "check the address and the CA in the kubeconfig", http.NotFound, httptest.NewServer},
		{"certificate of an unknown authority", "check the address and the CA in the kubeconfig", refuse, httptest.NewTLSServer},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := c.start(c.serve)
			defer server.Close()
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
			cfg := valid()
			cfg.Kubeconfig = kubeconfig(t, server.URL)
			r := start(t, cfg)
			r.until(t, c.want)
			if code, _ := r.get(t, "/readyz"); code != http.StatusServiceUnavailable {
				t.Errorf("readyz: %d", code)
			}
		})
	}
}

// TestAskARunningController: the commands print what it answers, and its refusals in its words.
func TestAskARunningController(t *testing.T) {
	cfg := valid()
	cfg.Kubeconfig = awayKubeconfig(t)
	server := "--server=" + start(t, cfg).HTTP.String()
	both := server + "," + start(t, cfg).HTTP.String()
	odd := httptest.NewServer(http.NotFoundHandler())
	defer odd.Close()
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"status", server, "--wait=1s"}, 0, "watched at the API server: nothing\n", ""},
		{[]string{"status", both, "-o", "json"}, 0, `"connected":0`, ""},
		{[]string{"status", "--server", odd.Listener.Addr().String()}, 1, "", "says: 404 page not found"},
		{[]string{"table", server, "--node=n1"}, 0, "# node n1, revision 0 of epoch ", ""},
	} {
		code, stdout, stderr := run(t, "", c.args...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) || c.code == 0 && stderr != "" {
			t.Errorf("%q: exit code %d, output %q, errors %q", c.args, code, stdout, stderr)
		}
	}
}

func follow(t *testing.T, address net.Addr) error {
	t.Helper()
	conn, err := grpc.NewClient(address.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := fairleadv1.NewForwardingClient(conn).Follow(t.Context())
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func TestQuiet(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(&quiet{next: slog.NewTextHandler(&out, nil), recent: &recent{said: map[string]time.Time{}}})
	for range 10 {
		logger.Info("detail")
		logger.Error("attempt failed")
		logger.With(slog.Int("attempt", 2)).Error("attempt failed")
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=WARN msg="attempt failed"`) {
		t.Errorf("log:\n%s", got)
	}
}
