package workload

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestLoadIsAnsweredOverEveryProtocol(t *testing.T) {
	s := startServer(t, 0)
	for _, c := range []LoadConfig{
		{Protocol: HTTP, Target: s.cfg.HTTP},
		{Protocol: TCP, Target: s.cfg.TCP},
		{Protocol: TCP, Target: s.cfg.TCP, Keep: true},
		{Protocol: UDP, Target: s.cfg.UDP},
		{Protocol: UDP, Target: s.cfg.UDP, Keep: true},
	} {
		t.Run(fmt.Sprintf("%s keep=%t", c.Protocol, c.Keep), func(t *testing.T) {
			c.Client, c.Rate, c.Timeout = "here", 200, 5*time.Second
			samples := collect(t, c, 10)
			sources := map[string]bool{}
			for _, sample := range samples {
				if sample.Error != "" || sample.Pod != "pod-a" || sample.Client != "here" || sample.Latency <= 0 {
					t.Errorf("sample = %+v", sample)
				}
				sources[sample.Source] = true
			}
			if one := len(sources) == 1; one != c.Keep {
				t.Errorf("%d samples came from %d connections", len(samples), len(sources))
			}
		})
	}
}

// TestKeepSpreads holds several connections and asks over each in turn.
func TestKeepSpreads(t *testing.T) {
	s := startServer(t, 0)
	samples := collect(t, LoadConfig{Protocol: TCP, Target: s.cfg.TCP, Rate: 200, Timeout: 5 * time.Second, Keep: true, Connections: 5}, 20)
	sources := map[string]int{}
	for _, sample := range samples {
		sources[sample.Source]++
	}
	if len(sources) != 5 {
		t.Errorf("%d samples came from %v, want 5 connections", len(samples), sources)
	}
	if err := (LoadConfig{Protocol: TCP, Target: s.cfg.TCP, Rate: 1, Timeout: time.Second, Connections: 2}).Validate(); err == nil {
		t.Error("connections that are not kept are spread over")
	}
}

func TestLoadReportsARefusalAndKeepsTheRate(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{false, true} {
		samples := collect(t, LoadConfig{Protocol: TCP, Target: listener.Addr().String(), Rate: 200, Timeout: time.Second, Keep: keep}, 5)
		for _, sample := range samples {
			if !strings.Contains(sample.Error, "refused") || sample.Pod != "" {
				t.Errorf("keep=%t: sample = %+v, want a refusal", keep, sample)
			}
		}
	}
}

func TestReadinessTurns(t *testing.T) {
	s := startServer(t, 0)
	for _, step := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/ready", 200},
		{http.MethodPost, "/admin/ready?value=false", 200},
		{http.MethodGet, "/ready", 503},
		{http.MethodGet, "/", 200},
		{http.MethodPost, "/admin/ready?value=perhaps", 400},
		{http.MethodGet, "/ready", 503},
		{http.MethodPost, "/admin/ready?value=true", 200},
		{http.MethodGet, "/ready", 200},
		{http.MethodGet, "/nothing", 404},
	} {
		if got := s.request(t, step.method, step.path); got != step.status {
			t.Errorf("%s %s = %d, want %d", step.method, step.path, got, step.status)
		}
	}
}

// TestServerDrains wants an ended server unready at once, and open for as long as told.
func TestServerDrains(t *testing.T) {
	s := startServer(t, time.Second)
	s.cancel()
	if line := s.logLine(t); !strings.Contains(line, "draining") {
		t.Fatalf("log says %q, want draining", line)
	}
	if got := s.request(t, http.MethodGet, "/ready"); got != 503 {
		t.Errorf("/ready = %d while draining, want 503", got)
	}
	if got := s.request(t, http.MethodGet, "/"); got != 200 {
		t.Errorf("/ = %d while draining, want 200", got)
	}
	if line := s.logLine(t); !strings.Contains(line, "ending") {
		t.Errorf("log says %q, want ending", line)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

func TestServeNamesABusyPort(t *testing.T) {
	s := startServer(t, 0)
	err := Serve(context.Background(), ServerConfig{Name: "b", TCP: s.cfg.TCP}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "listen for TCP") {
		t.Errorf("error = %v, want one about the TCP port", err)
	}
}

func TestValidateNamesEveryFlag(t *testing.T) {
	err := LoadConfig{Protocol: "sctp", Target: "nowhere", Rate: -1}.Validate()
	for _, name := range []string{"--protocol", "--target", "--rate", "--timeout"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error = %v, want %s in it", err, name)
		}
	}
}

func TestReadSamplesLeavesOutAnUnfinishedLine(t *testing.T) {
	samples, err := ReadSamples(strings.NewReader("{\"pod\":\"a\"}\n{\"pod\":"))
	if err != nil || len(samples) != 1 || samples[0].Pod != "a" {
		t.Errorf("samples = %v, %v", samples, err)
	}
	if _, err := ReadSamples(strings.NewReader("noise\n")); err == nil {
		t.Error("no error for a line that is no sample")
	}
}

type running struct {
	cfg    ServerConfig
	cancel context.CancelFunc
	ended  chan error
	log    chan string // a line each
}

// startServer runs a server on free loopback ports until the test ends.
func startServer(t *testing.T, drain time.Duration) *running {
	t.Helper()
	s := &running{ended: make(chan error, 1), log: make(chan string, 100)}
	s.cfg = ServerConfig{Name: "pod-a", HTTP: free(t), TCP: free(t), UDP: free(t), Drain: drain}
	read, write := io.Pipe()
	go func() {
		for lines := bufio.NewScanner(read); lines.Scan(); {
			s.log <- lines.Text()
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended <- Serve(ctx, s.cfg, slog.New(slog.NewTextHandler(write, nil)))
	}()
	if line := s.logLine(t); !strings.Contains(line, "serving") {
		t.Fatalf("log says %q, want serving", line)
	}
	t.Cleanup(func() { cancel(); _ = read.Close(); <-done })
	return s
}

func (s *running) logLine(t *testing.T) string {
	t.Helper()
	select {
	case line := <-s.log:
		return line
	case <-time.After(10 * time.Second):
		t.Fatal("the server logs nothing")
		return ""
	}
}

func (s *running) request(t *testing.T, method, path string) int {
	t.Helper()
	request, err := http.NewRequest(method, "http://"+s.cfg.HTTP+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// collect runs a client until it has written n samples.
func collect(t *testing.T, cfg LoadConfig, n int) []Sample {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := &counter{left: n, full: cancel}
	if err := Load(ctx, cfg, out); err != nil {
		t.Fatal(err)
	}
	samples, err := ReadSamples(&out.content)
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) < n {
		t.Fatalf("%d samples, want %d", len(samples), n)
	}
	return samples
}

// counter calls full after so many writes.
type counter struct {
	content bytes.Buffer
	left    int
	full    func()
}

func (c *counter) Write(p []byte) (int, error) {
	if c.left--; c.left == 0 {
		c.full()
	}
	return c.content.Write(p)
}

// free returns a loopback address with a port that nothing uses.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
