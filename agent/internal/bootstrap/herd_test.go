package bootstrap

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/agent/internal/testca"
)

// Agents of the tests below: some for each of the thousand that the bound is for.
const (
	herdSize = 150
	// bound is how many requests a second a thousand agents may make together.
	bound = 20
)

// herd starts agents that ask a real API server, all at once.
func herd(t *testing.T, cfg Config) []*Directory {
	t.Helper()
	var all []*Directory
	var running sync.WaitGroup
	for i := range herdSize {
		one := cfg
		if cfg.Dir != "" {
			one.Dir = t.TempDir()
			if err := (Known{Controllers: []string{fmt.Sprintf("192.0.2.%d:7443", i+1)}}).save(one.Dir); err != nil {
				t.Fatal(err)
			}
		}
		one.Metrics, one.Logger = NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)
		all = append(all, New(one))
	}
	for _, d := range all {
		running.Go(func() { d.Run(t.Context()) })
	}
	t.Cleanup(running.Wait)
	return all
}

// pass waits for a time.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// TestHerdOfClients counts what an API server is asked by agents that no controller answers, of those that an earlier agent
// knew: no more than 20 requests a second for a thousand of them, and no herd at first. Their time runs 25 times as fast.
func TestHerdOfClients(t *testing.T) {
	const faster, windows = 25, 4
	interval := testInterval / faster
	ca := testca.New(t)
	s := startAPIServer(t, ca, nil)
	s.set(http.StatusNotFound, nil)
	begin := time.Now()
	herd(t, Config{APIServers: []string{s.address}, Lookup: credentialsOf(t, ca), Dir: "each its own", Interval: interval})
	pass(interval / 4)
	if n := s.requests(); n == 0 || n > herdSize/2 { // a quarter of them, if they are spread evenly
		t.Errorf("%d of %d agents have asked in a quarter of the time", n, herdSize)
	}
	for range windows {
		pass(interval)
	}
	n, took := s.requests(), time.Since(begin)
	perSecond := float64(n) / took.Seconds() / faster / herdSize * 1000
	t.Logf("%d requests of %d agents in %v: %.1f a second for a thousand, at the true speed", n, herdSize, took, perSecond)
	if perSecond > bound || n < herdSize { // a busy machine keeps them from asking as often as they would
		t.Errorf("%.1f requests a second for a thousand agents, want some, and at most %d", perSecond, bound)
	}
}

// TestHerdOfNewClients: where agents are new and wait for the first controller, each asks a few times, ever less often, and
// finds it soon after it is there.
func TestHerdOfNewClients(t *testing.T) {
	ca := testca.New(t)
	s := startAPIServer(t, ca, nil)
	s.set(http.StatusNotFound, map[string]string{"controllers": "192.0.2.1:7443", "ca.crt": ca.PEM()})
	begin := time.Now()
	agents := herd(t, Config{APIServers: []string{s.address}, NeedsBundle: true, Lookup: credentialsOf(t, ca), Interval: testInterval})
	eventually(t, "all have asked", func() bool { return s.requests() >= herdSize })
	pass(2 * time.Second)
	s.mu.Lock()
	n := s.asked
	s.code = http.StatusOK
	there := time.Since(begin)
	s.mu.Unlock()
	// Each has asked at once, a second later in one second, in the next two, and so on.
	most := 1
	for begins := firstWindow; begins < there; begins *= 2 {
		most++
	}
	if n > most*herdSize {
		t.Errorf("%d requests of %d agents in %v, want at most %d of each", n, herdSize, there, most)
	}
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, d := range agents {
		d.Controllers(patient)
	}
	waited := time.Since(begin) - there
	t.Logf("%d requests of %d agents before the controller was there, after %v; the last of them finds it %v later", n, herdSize, there, waited)
	if waited > 3*there+3*firstWindow+30*time.Second { // what the windows allow, and a busy machine
		t.Errorf("the last agent finds the controller %v after it was there", waited)
	}
}
