package kube

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// transport answers with one error after the other, then with success.
type transport struct {
	errs  []error
	calls int
}

func (t *transport) RoundTrip(*http.Request) (*http.Response, error) {
	t.calls++
	if len(t.errs) > 0 {
		err := t.errs[0]
		t.errs = t.errs[1:]
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func refused() error { return &net.OpError{Op: "dial", Err: errors.New("connection refused")} }

func TestReach(t *testing.T) {
	broken := &net.OpError{Op: "read", Err: errors.New("connection reset")}
	for _, c := range []struct {
		name, body string
		errs       []error
		wantErr    bool
		wantCalls  int
		wantLog    []string
	}{
		{"there", "", nil, false, 1, nil},
		{"away and back", "", []error{refused(), refused(), refused()}, false, 4, []string{"cannot be reached", "is back"}},
		{"broken while answering", "", []error{broken}, true, 1, nil},
		{"with a body nothing waits", "x", []error{refused()}, true, 1, []string{"cannot be reached"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			next := &transport{errs: c.errs}
			reach := NewReach(slog.New(slog.NewTextHandler(&log, nil)))(next)
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example/", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := reach.RoundTrip(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			if (err != nil) != c.wantErr || next.calls != c.wantCalls {
				t.Errorf("error %v after %d calls, want error %t after %d", err, next.calls, c.wantErr, c.wantCalls)
			}
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if log.Len() == 0 {
				lines = nil
			}
			if len(lines) != len(c.wantLog) {
				t.Fatalf("log:\n%s\nwant %d lines", log.String(), len(c.wantLog))
			}
			for i, want := range c.wantLog {
				if !strings.Contains(lines[i], want) {
					t.Errorf("log line %d: %s, want %q", i, lines[i], want)
				}
			}
		})
	}
}

func TestReachEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	next := &transport{errs: []error{refused(), refused(), refused(), refused(), refused(), refused(), refused(), refused()}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		cancel() // the first line says that it waits
		return len(p), nil
	}), nil))
	resp, err := NewReach(logger)(next).RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
		t.Error("no error after the context ended")
	}
	if next.calls > 2 {
		t.Errorf("%d calls after the context ended", next.calls)
	}
}

// TestReachSaysThatNobodyAnswers: connections are taken, and then nothing comes.
func TestReachSaysThatNobodyAnswers(t *testing.T) {
	said := make(chan string, 1)
	logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		said <- string(p)
		return len(p), nil
	}), nil))
	silent := roundTripper(func(*http.Request) (*http.Response, error) {
		line := <-said
		if !strings.Contains(line, "has not answered") || !strings.Contains(line, "server=api.example") {
			t.Errorf("log: %s", line)
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example/api/v1/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &Reach{next: silent, logger: logger, away: new(atomic.Bool), patience: time.Millisecond}
	resp, err := r.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
