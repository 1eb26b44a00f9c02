//go:build soak

package scale_test

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestSoakKills: three replicas under churn, of which one, leading or not, is killed and started again 30 times.
func TestSoakKills(t *testing.T) {
	b := newBed(t)
	ports := []uint16{7443, 7463, 7483}
	for _, port := range ports {
		b.controller(t, port)
	}
	if err := b.Tokens(t.Context(), agents); err != nil {
		t.Fatal(err)
	}
	herd := b.swarm(t, 0, agents, "")
	b.current(t, herd)
	churn := b.churn(t)
	rng := rand.New(rand.NewPCG(30, 1))
	leaders, last := 0, ""
	for range 30 {
		port, epoch := b.leader(t, func(uint16, string) bool { return true })
		if epoch < last {
			t.Fatalf("epoch %s after %s", epoch, last)
		}
		last = epoch
		if rng.IntN(2) == 0 {
			port = ports[rng.IntN(len(ports))]
		} else {
			leaders++
		}
		b.controllers[port].Kill()
		<-time.After(time.Duration(rng.IntN(4000)) * time.Millisecond) // longer than a Lease, or not
		b.controller(t, port)
		b.current(t, herd)
	}
	churn()
	b.verify(t, herd)
	t.Logf("%d of 30 kills were of the leader, the last epoch is %s", leaders, last)
}
