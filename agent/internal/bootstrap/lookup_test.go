package bootstrap

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/agent/internal/testca"
)

// apiServer is a real HTTPS server with one ConfigMap, for whoever has the token.
type apiServer struct {
	*httptest.Server
	address string
	mu      sync.Mutex
	code    int
	data    map[string]string
	asked   int
	t       *testing.T
}

const goodToken = "header.claims.signature"

// startAPIServer runs one at 127.0.0.1 with a certificate of ca.
func startAPIServer(t *testing.T, ca *testca.CA, data map[string]string) *apiServer {
	t.Helper()
	s := &apiServer{code: http.StatusOK, data: data, t: t}
	s.Server = httptest.NewUnstartedServer(s)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Server(t, "127.0.0.1")}}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	t.Cleanup(s.Close)
	s.address = s.Listener.Addr().String()
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	switch {
	case r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/ns/configmaps/name":
		w.WriteHeader(http.StatusBadRequest)
	case r.Header.Get("Authorization") != "Bearer "+goodToken:
		w.WriteHeader(http.StatusUnauthorized)
	case s.code != http.StatusOK:
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(s.code)
	default:
		_, _ = w.Write(configMap(s.t, s.data))
	}
}

func (s *apiServer) set(code int, data map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.data = code, data
}

func (s *apiServer) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// credentialsOf writes what a Pod has for API servers that ca vouches for.
func credentialsOf(t *testing.T, ca *testca.CA) Lookup {
	t.Helper()
	l := Lookup{Namespace: "ns", Name: "name", TokenFile: filepath.Join(t.TempDir(), "token"), CAFile: filepath.Join(t.TempDir(), "ca.crt")}
	write(t, l.TokenFile, goodToken+"\n")
	write(t, l.CAFile, "# comment\n"+ca.PEM())
	return l
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLookup: the object is had by HTTPS alone, and each failure says what to do.
func TestLookup(t *testing.T) {
	ca := testca.New(t)
	s := startAPIServer(t, ca, map[string]string{"controllers": "192.0.2.1:7443"})
	l := credentialsOf(t, ca)
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1") // is not used
	if k, err := l.get(t.Context(), s.address); err != nil || len(k.Controllers) != 1 {
		t.Fatalf("%+v, %v", k, err)
	}
	fails := func(want string) {
		t.Helper()
		k, err := l.get(t.Context(), s.address)
		if err == nil || !strings.Contains(err.Error(), want) || !k.equal(Known{}) || strings.Contains(err.Error(), "claims") {
			t.Errorf("%+v, error %v, want %q", k, err, want)
		}
	}
	for code, want := range map[int]string{
		http.StatusForbidden:          "forbids to get ConfigMap ns/name: grant the agents' ServiceAccount the verb get on it",
		http.StatusNotFound:           "has no ConfigMap ns/name: is a controller running",
		http.StatusFound:              "answers Found",
		http.StatusServiceUnavailable: "answers Service Unavailable",
	} {
		s.set(code, nil)
		fails(want)
	}
	s.set(http.StatusOK, map[string]string{"controllers": "192.0.2.1:7443", "x": strings.Repeat("x", maxAnswer)})
	fails("more than")
	write(t, l.TokenFile, "other.claims.token")
	fails("takes the token of --apiserver-token-file " + l.TokenFile + " for nobody's")
	for content, want := range map[string]string{
		" \n": "is empty", "a\nclaims": "is no token", strings.Repeat("x", maxToken+1): "more than",
	} {
		write(t, l.TokenFile, content)
		fails(want)
	}
	l.TokenFile = "/nonexistent/token"
	fails("--apiserver-token-file: read token: open /nonexistent/token")
	l = credentialsOf(t, testca.New(t))
	fails("x509: certificate signed by unknown authority")
	write(t, l.CAFile, "")
	fails("--apiserver-ca-file " + l.CAFile + ": CA bundle: holds no certificate")
	l.CAFile = "/nonexistent/ca"
	fails("--apiserver-ca-file: open /nonexistent/ca")
	plain := httptest.NewServer(s)
	defer plain.Close()
	s.address = plain.Listener.Addr().String()
	l = credentialsOf(t, ca)
	fails("server gave HTTP response to HTTPS client")
}

// TestToken: the file is read each time, and never goes over plaintext.
func TestToken(t *testing.T) {
	token := Token{filepath.Join(t.TempDir(), "token")}
	if _, err := token.GetRequestMetadata(t.Context()); err == nil || !strings.Contains(err.Error(), "--token-file: read token: open "+token.File) {
		t.Errorf("error %v", err)
	}
	for _, content := range []string{"one", "two"} {
		write(t, token.File, content+"\n")
		if m, err := token.GetRequestMetadata(t.Context()); err != nil || m["authorization"] != "Bearer "+content {
			t.Errorf("%v, %v", m, err)
		}
	}
	if !token.RequireTransportSecurity() {
		t.Error("the token goes over plaintext")
	}
}
