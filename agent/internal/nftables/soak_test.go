//go:build soak

package nftables

import "testing"

// TestSoakFlips is TestFlood with twenty million packets.
func TestSoakFlips(t *testing.T) { floods(t, 10_000_000) }
