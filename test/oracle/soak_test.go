//go:build soak

package oracle

import (
	"os"
	"testing"
	"time"
)

// TestSoakRandomClusters compares clusters that nobody has seen before, unless SEED names them.
func TestSoakRandomClusters(t *testing.T) {
	n := uint64(time.Now().Unix())
	if _, ok := os.LookupEnv("SEED"); ok {
		n = seed(t)
	}
	compareRandom(t, n, 100_000)
}
