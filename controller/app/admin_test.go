package app

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/controller/internal/observe"
	"github.com/fairlead/fairlead/controller/internal/table"
)

// TestLevel changes what a running controller logs.
func TestLevel(t *testing.T) {
	cfg := valid()
	cfg.Kubeconfig, cfg.Level = awayKubeconfig(t), &slog.LevelVar{}
	server := "--server=" + start(t, cfg).HTTP.String()
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"loglevel", server}, 0, "info\n", ""},
		{[]string{"loglevel", "debug", server}, 0, "debug\n", ""},
		{[]string{"loglevel", server}, 0, "debug\n", ""},
		{[]string{"loglevel", "loud", server}, 1, "", `"loud": want debug, info, warn, error`},
		{[]string{"loglevel", "a", "b"}, 1, "", `unexpected argument "b"`},
	} {
		if code, stdout, stderr := run(t, "", c.args...); code != c.code || stdout != c.stdout || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%q: %d %q %q", c.args, code, stdout, stderr)
		}
	}
	if cfg.Level.Level() != slog.LevelDebug {
		t.Errorf("the logger's level is %v", cfg.Level)
	}
}

// TestProfiling: profiles are served where that was asked for.
func TestProfiling(t *testing.T) {
	for _, on := range []bool{false, true} {
		cfg := valid()
		cfg.Kubeconfig, cfg.Profiling = awayKubeconfig(t), on
		r := start(t, cfg)
		want := map[bool]int{false: http.StatusNotFound, true: http.StatusOK}[on]
		if code, _ := r.get(t, "/debug/pprof/heap"); code != want {
			t.Errorf("profiling %t: %d, want %d", on, code, want)
		}
	}
}

// TestFromHere: log levels and profiles are nothing for the network.
func TestFromHere(t *testing.T) {
	own := net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.11:7480"))
	for remote, want := range map[string]int{
		"127.0.0.1:5": 200, "[::1]:5": 200, "[::ffff:127.0.0.1]:5": 200, "192.0.2.11:5": 200,
		"192.0.2.12:5": 403, "[2001:db8::1]:5": 403, "": 403, "@": 403,
	} {
		mux := http.NewServeMux()
		level := &slog.LevelVar{}
		serveAdmin(mux, Config{Level: level, Logger: slog.New(slog.DiscardHandler), Profiling: true})
		for _, path := range []string{"/debug/fairlead/loglevel", "/debug/pprof/heap"} {
			ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, own)
			r, w := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil), httptest.NewRecorder()
			r.RemoteAddr = remote
			if mux.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s from %q: %d, want %d", path, remote, w.Code, want)
			}
		}
	}
}

// TestExplainRefuses what it cannot answer; explanations themselves are held by package explain.
func TestExplainRefuses(t *testing.T) {
	cfg := valid()
	cfg.Kubeconfig = awayKubeconfig(t)
	server := start(t, cfg).HTTP.String()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "--service is missing"},
		{[]string{"--service", "web"}, `service "web": want NAMESPACE/NAME`},
		{[]string{"--service", "default/web"}, "the first lists from the API server are not complete"},
		{[]string{"--service", "default/web", "-o", "xml"}, `--output "xml": want text or json`},
		{[]string{"more"}, `unexpected argument "more"`},
	} {
		args := append([]string{"explain", "--server", server}, c.args...)
		if code, _, stderr := run(t, "", args...); code != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: %d %q, want %q", args, code, stderr, c.want)
		}
	}
}

// TestFailing: a Node's owner hears of each reason once, and again after the kernel had taken a table.
func TestFailing(t *testing.T) {
	o, err := observe.New(observe.Config{Tables: table.NewStore(1, table.Options{}), Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	agent := observe.Agent{Node: "n1", Sequence: 1, Position: func() (uint64, uint64) { return 9, 9 }}
	var said []string
	f := &failing{Session: o.Connected(agent), warn: func(reason, note string) { said = append(said, reason+": "+note) }}
	f.Failed(1, "no room")
	f.Failed(2, "no room")
	f.Failed(3, "no device")
	f.Applied(4, time.Millisecond)
	f.Failed(5, "no device")
	const text = "ForwardingNotProgrammed: the node's agent could not put revision "
	if len(said) != 3 || !strings.HasPrefix(said[0], text+"1 ") || !strings.HasSuffix(said[1], "no device") || !strings.HasPrefix(said[2], text+"5 ") {
		t.Errorf("said %q", said)
	}
	if nodes := o.Status().Nodes; !slices.ContainsFunc(nodes, func(n observe.NodeStatus) bool { return n.Error == "no device" }) {
		t.Errorf("the session itself heard nothing: %+v", nodes)
	}
}
