package workload

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestServerAsks lets a server ask itself; the samples say who asked from where.
func TestServerAsks(t *testing.T) {
	s := startServer(t, 0)
	body, err := json.Marshal(AskConfig{Protocol: UDP, Target: s.cfg.UDP, Timeout: 5 * time.Second, Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post("http://"+s.cfg.HTTP+"/admin/ask", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	samples, err := ReadSamples(response.Body)
	if err != nil || len(samples) != 3 {
		t.Fatalf("samples = %v, %v, want 3", samples, err)
	}
	for _, sample := range samples {
		if sample.Error != "" || sample.Pod != "pod-a" || sample.Client != "pod-a" || !strings.HasPrefix(sample.Source, "127.0.0.1:") {
			t.Errorf("sample = %+v", sample)
		}
	}
}

func TestAskNamesEveryFlag(t *testing.T) {
	_, err := Ask(t.Context(), AskConfig{Protocol: "sctp", Target: "nowhere"})
	for _, name := range []string{"--protocol", "--target", "--timeout", "--count"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error = %v, want %s in it", err, name)
		}
	}
}

// TestKeptUDPKeepsItsPort while nothing answers.
func TestKeptUDPKeepsItsPort(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ports := make(chan string, 100)
	go func() {
		datagram := make([]byte, 100)
		for n := 0; ; n++ {
			_, from, err := conn.ReadFrom(datagram)
			if err != nil {
				return
			}
			ports <- from.String()
			if n%2 == 1 {
				_, _ = conn.WriteTo([]byte("a "+from.String()), from)
			}
		}
	}()
	failed := 0
	cfg := LoadConfig{Client: "kept", Protocol: UDP, Target: conn.LocalAddr().String(), Rate: 100, Timeout: 50 * time.Millisecond, Keep: true}
	for _, sample := range collect(t, cfg, 4) {
		if sample.Error != "" {
			failed++
		}
	}
	if first, second := <-ports, <-ports; first != second || failed == 0 {
		t.Errorf("datagrams came from %s and %s, %d failed, want one port and some failures", first, second, failed)
	}
}
