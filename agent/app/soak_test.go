//go:build soak

package app

import (
	"testing"
	"time"
)

// TestSoakLock is TestLock for as long as a firewall's reload may ever take.
func TestSoakLock(t *testing.T) { testLock(t, time.Minute) }
