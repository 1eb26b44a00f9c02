package iptables

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/agent/dataplane/lab/uml"
	"github.com/fairlead/fairlead/agent/dataplane/trace"
	"github.com/fairlead/fairlead/proto/fwd"
)

// TestSCTP sends the packets of traces with SCTP in a kernel that has sockets of it, which is also older than the machine's is
// likely to be.
func TestSCTP(t *testing.T) {
	if !uml.EnterBuilt(t) {
		return
	}
	sendFiles(t, slices.DeleteFunc(loadTraces(t), func(f trace.File) bool {
		return !slices.ContainsFunc(f.Cases, func(c trace.Case) bool { return c.Protocol == fwd.SCTP })
	}))
}
