package healthcheck

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// TestServices asks real servers on the loopback of both families.
func TestServices(t *testing.T) {
	var forwarding atomic.Bool
	forwarding.Store(true)
	s := NewServices(Config{Forwarding: forwarding.Load})
	t.Cleanup(s.Close)
	port := freePort(t)
	update(t, s, Port{Namespace: "default", Name: "web", NodePort: port, LocalEndpoints: [2]int{2, 0}})

	expect(t, "127.0.0.1", port, answer{http.StatusOK, "2", `{"service":{"namespace":"default","name":"web"},"localEndpoints":2,"serviceProxyHealthy":true}`})
	expect(t, "::1", port, answer{http.StatusServiceUnavailable, "0", `{"service":{"namespace":"default","name":"web"},"localEndpoints":0,"serviceProxyHealthy":true}`})

	forwarding.Store(false)
	expect(t, "127.0.0.1", port, answer{http.StatusServiceUnavailable, "2", `{"service":{"namespace":"default","name":"web"},"localEndpoints":2,"serviceProxyHealthy":false}`})
	forwarding.Store(true)

	update(t, s, Port{Namespace: "default", Name: "other", NodePort: port, LocalEndpoints: [2]int{0, 1}})
	expect(t, "127.0.0.1", port, answer{http.StatusServiceUnavailable, "0", `{"service":{"namespace":"default","name":"other"},"localEndpoints":0,"serviceProxyHealthy":true}`})
	expect(t, "::1", port, answer{http.StatusOK, "1", `{"service":{"namespace":"default","name":"other"},"localEndpoints":1,"serviceProxyHealthy":true}`})

	update(t, s)
	if _, err := get(t, "127.0.0.1", port); err == nil {
		t.Error("the server of a Service that is gone still answers")
	}
}

// TestServicesPortTaken: a port in use is a Notice every time and harms no other port; once it is free it is served.
func TestServicesPortTaken(t *testing.T) {
	s := NewServices(Config{Forwarding: func() bool { return true }})
	t.Cleanup(s.Close)
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	taken := portOf(other)
	want := []Port{
		{Namespace: "default", Name: "unlucky", NodePort: taken, LocalEndpoints: [2]int{1, 1}},
		{Namespace: "default", Name: "web", NodePort: freePort(t), LocalEndpoints: [2]int{1, 1}},
	}
	for range 2 {
		notices := s.Update(t.Context(), want)
		if len(notices) != 1 || notices[0].Name != "unlucky" || notices[0].Reason != reasonPortInUse ||
			!strings.Contains(notices[0].Message, strconv.Itoa(int(taken))) {
			t.Fatalf("notices %+v, want one for the taken port", notices)
		}
	}
	if a, err := get(t, "127.0.0.1", want[1].NodePort); err != nil || a.code != http.StatusOK {
		t.Errorf("the other port: %+v, %v", a, err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	update(t, s, want...)
	if a, err := get(t, "127.0.0.1", taken); err != nil || a.code != http.StatusOK {
		t.Errorf("after the port became free: %+v, %v", a, err)
	}
}

// TestServicesAnswers: an address that takes no NodePorts gets no answer.
func TestServicesAnswers(t *testing.T) {
	s := NewServices(Config{
		Forwarding: func() bool { return true },
		Answers:    func(a netip.Addr) bool { return a == netip.MustParseAddr("127.0.0.2") },
	})
	t.Cleanup(s.Close)
	port := freePort(t)
	update(t, s, Port{Namespace: "default", Name: "web", NodePort: port, LocalEndpoints: [2]int{1, 1}})
	if _, err := get(t, "127.0.0.1", port); err == nil {
		t.Error("127.0.0.1 answers")
	}
	if a, err := get(t, "127.0.0.2", port); err != nil || a.code != http.StatusOK {
		t.Errorf("127.0.0.2: %+v, %v", a, err)
	}
}

type answer struct {
	code         int
	weight, body string
}

func expect(t *testing.T, host string, port uint16, want answer) {
	t.Helper()
	got, err := get(t, host, port)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("%s: got  %+v\nwant %+v", host, got, want)
	}
}

func get(t *testing.T, host string, port uint16) (answer, error) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	url := "http://" + net.JoinHostPort(host, strconv.Itoa(int(port))) + "/"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b) || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("no JSON: %q", b)
	}
	return answer{resp.StatusCode, resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), strings.TrimSpace(string(b))}, nil
}

func update(t *testing.T, s *Services, want ...Port) {
	t.Helper()
	if notices := s.Update(t.Context(), want); len(notices) > 0 {
		t.Fatalf("notices %+v", notices)
	}
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return portOf(l)
}

func portOf(l net.Listener) uint16 {
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}
