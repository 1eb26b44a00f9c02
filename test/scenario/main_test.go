package scenario

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/test/hub"
)

// TestMain runs the tests in a namespace of their own: the hub has API server and controller; agents are 10.200.1.x.
func TestMain(m *testing.M) {
	if os.Getenv(agentArguments) != "" {
		os.Exit(runAgent())
	}
	os.Exit(hub.Run(m.Run))
}
