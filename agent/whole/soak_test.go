//go:build soak

package whole

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/dataplane/lab/uml"
)

// TestSoakIPVSKills kills agents in IPVS mode as testKill does, for longer.
func TestSoakIPVSKills(t *testing.T) {
	if uml.EnterFor(t, 2*time.Hour) {
		testKill(t, 1000)
	}
}
