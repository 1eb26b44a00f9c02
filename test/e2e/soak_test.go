//go:build soak

package e2e

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/cluster"
)

// kills is how often TestSoakKills kills something.
const kills = 200

// TestSoakKills kills controller and agents at random moments, many times, under traffic; each comes back at once. No
// request and no established connection is lost, and changes arrive in between.
func TestSoakKills(t *testing.T) {
	ctx := t.Context()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	cs := startClients(ctx, t)
	for i := range kills {
		victim := rng.IntN(len(bed.Cluster.Nodes) + 1)
		if victim == len(bed.Cluster.Nodes) {
			restartController(ctx, t)
		} else {
			restartAgent(ctx, t, bed.Cluster.Nodes[victim])
		}
		if i%20 == 19 {
			waitConnected(ctx, t)
			flipsArrive(ctx, t)
			t.Logf("%d kills", i+1)
		}
		after(ctx, t, time.Duration(rng.IntN(1500))*time.Millisecond)
	}
	waitConnected(ctx, t)
	flipsArrive(ctx, t)
	cs.stop(ctx, t)
}

func restartController(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := bed.Controller.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := bed.StartController(); err != nil {
		t.Fatal(err)
	}
}

func restartAgent(ctx context.Context, t *testing.T, n *cluster.Node) {
	t.Helper()
	if err := bed.Agents[n.Name].Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := bed.StartAgent(n); err != nil {
		t.Fatal(err)
	}
}

// TestSoakAPIServerAway takes the API server away for ten minutes, and the controller for the last five of them.
func TestSoakAPIServerAway(t *testing.T) { bothAway(t, 5*time.Minute) }
