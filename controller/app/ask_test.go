package app

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/controller/internal/observe"
)

// TestLagging: a node is waited for until the controller that it follows has it where that controller was at first.
func TestLagging(t *testing.T) {
	node := func(name string, connected bool, holds uint64) observe.NodeStatus {
		return observe.NodeStatus{Node: name, Connected: connected, Holds: holds}
	}
	replicas := []observe.Status{
		{Nodes: []observe.NodeStatus{node("current", true, 5), node("behind", true, 4), node("other", false, 9), node("nobody", false, 0)}},
		{Nodes: []observe.NodeStatus{node("current", false, 0), node("other", true, 70), node("behind", false, 90)}},
	}
	if got, want := lagging(replicas, []uint64{5, 70}), []string{"behind", "nobody"}; !slices.Equal(got, want) {
		t.Errorf("lagging: %q, want %q", got, want)
	}
}
