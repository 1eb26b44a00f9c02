package kubeproxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestCountSynced(t *testing.T) {
	const (
		help   = "# HELP " + lastSync + " x\n"
		queued = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 1.7e+09\n"
	)
	for text, want := range map[string]int{
		"":                             0,
		queued:                         0,
		lastSync + "\n":                0,
		help + lastSync + " 0\n":       0,
		help + lastSync + " 1.7e+09\n": 1,
		"fairlead_agent_info 1\n" + lastSync + " 1.7e+09\n":                                       0,
		lastSync + "{ip_family=\"IPv4\"} 1.7e+09\n" + lastSync + "{ip_family=\"IPv6\"} 1.7e+09\n": 2,
	} {
		if got := countSynced(strings.NewReader(text)); got != want {
			t.Errorf("%q: %d families, want %d", text, got, want)
		}
	}
}

// TestAwait ends once a kube-proxy has programmed, not before, and with its context.
func TestAwait(t *testing.T) {
	var looks atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if looks.Add(1) > 2 {
			_, _ = w.Write([]byte(lastSync + " 1.7e+09\n"))
		}
	}))
	defer server.Close()
	at := netip.MustParseAddrPort(strings.TrimPrefix(server.URL, "http://"))
	if err := Await(t.Context(), at); err != nil || looks.Load() < 2+settled {
		t.Errorf("error %v after %d looks", err, looks.Load())
	}
	server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := Await(ctx, at); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of the context", err)
	}
}
