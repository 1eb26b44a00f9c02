package admin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serve answers at the socket of a folder until the test ends.
func serve(t *testing.T, dir string, h http.HandlerFunc) net.Listener {
	t.Helper()
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	server, ended := &http.Server{Handler: h}, make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return l
}

// TestTalk: what is asked and put reaches the handler, and its answer, or its refusal, whoever asked.
func TestTalk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	serve(t, dir, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/no" {
			http.Error(w, "not that", http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
	})
	for _, c := range []struct {
		name string
		do   func(w io.Writer) error
		want string
	}{
		{"get", func(w io.Writer) error { return Client{dir}.Get(t.Context(), "/table", w) }, "GET /table "},
		{"put", func(w io.Writer) error { return Client{dir}.Put(t.Context(), "/loglevel", "debug", w) }, "PUT /loglevel debug"},
	} {
		var out bytes.Buffer
		if err := c.do(&out); err != nil || out.String() != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, &out, err, c.want)
		}
	}
	if err := (Client{dir}).Get(t.Context(), "/no", io.Discard); err == nil || err.Error() != "the agent says: not that" {
		t.Errorf("a refusal: %v", err)
	}
}

// TestSocket: only its owner may use it, a successor takes its place, and one that was left behind is no agent.
func TestSocket(t *testing.T) {
	dir := t.TempDir()
	if err := (Client{dir}).Get(t.Context(), "/", io.Discard); !errors.Is(err, ErrNoAgent) {
		t.Errorf("without a socket: %v", err)
	}
	first := serve(t, dir, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "first") })
	info, err := os.Stat(filepath.Join(dir, Name))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	second := serve(t, dir, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "second") })
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := (Client{dir}).Get(t.Context(), "/", &out); err != nil || out.String() != "second" {
		t.Errorf("%q answers, %v", &out, err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if err := (Client{dir}).Get(t.Context(), "/", io.Discard); !errors.Is(err, ErrNoAgent) {
		t.Errorf("a socket that was left behind: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		"/" + strings.Repeat("a", 120): "want at most 107: choose a shorter folder",
		file:                           "make folder",
	} {
		if _, err := Listen(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}
