package iptables

import (
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/lab/uml"
)

// TestOlderKernel sends the packets in a kernel that is older than the machine's is likely to be, and has sockets of SCTP.
func TestOlderKernel(t *testing.T) {
	if uml.EnterBuilt(t) {
		TestPackets(t)
	}
}
